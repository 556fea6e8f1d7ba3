// SPDX-License-Identifier: BSD-3-Clause
// Prints the operators of a .tflite as Netron reads them, each with its results: node netron.mjs FOLDER FILE
// FOLDER has the scripts of the package netron and a package.json of {"type": "module"}.

import * as fs from 'node:fs';
import * as path from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, file] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(path.join(folder, name)).href);

const base = await load('base.js');
const flatbuffers = await load('flatbuffers.js');
const tflite = await load('tflite.js');
const stream = new base.BinaryStream(fs.readFileSync(file));

const context = {
    identifier: path.basename(file),
    stream,
    peek: async (kind) => (kind === 'flatbuffers.binary' ? flatbuffers.BinaryReader.open(stream) : null),
    set: (type, value) => Object.assign(context, { type, value }) && type,
    require: (name) => load(`${path.basename(name)}.js`),
    metadata: async () => ({ type: (name) => ({ name }), attribute: () => null }),
};

const factory = new tflite.ModelFactory();
if (!await factory.match(context)) {
    throw new Error('Netron does not take it for a .tflite');
}
const model = await factory.open(context);
const operators = model.modules[0].nodes.map((node) => ({
    operator: node.type.name,
    results: node.outputs.flatMap((result) => result.value).map((value) => ({
        name: value.name.split('\n')[0],
        shape: value.type.shape ? value.type.shape.dimensions.map(Number) : [],
    })),
}));
console.log(JSON.stringify({ format: model.format, operators }));
