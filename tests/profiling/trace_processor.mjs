// SPDX-License-Identifier: BSD-3-Clause
// Prints the rows of a query of Perfetto's trace processor as JSON: node trace_processor.mjs FOLDER TRACE < QUERY
// FOLDER is build/trace_processor, which `make build/trace_processor/trace_processor.wasm` fetches.

import * as fs from 'node:fs';
import * as path from 'node:path';
import { pathToFileURL } from 'node:url';
import * as vm from 'node:vm';

const [folder, trace] = process.argv.slice(2);
const file = (name) => path.join(folder, path.basename(name));

// The engine is made for a worker of a browser, which fetches the WebAssembly file while it loads.
class FileRequest {
    open(method, name) {
        this.name = name;
    }

    send() {
        const bytes = fs.readFileSync(file(this.name));
        this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    }
}

// FOLDER has the build for 32-bit addresses alone. The engine asks for another one where a module compiles that begins with the
// section of a memory, and has nothing but a memory of 64-bit addresses.
const MEMORY_SECTION = 5;
const { Module } = WebAssembly;
WebAssembly.Module = function (bytes) {
    if (bytes[8] === MEMORY_SECTION) {
        throw new WebAssembly.CompileError('no memory of 64-bit addresses');
    }
    return new Module(bytes);
};
const node = globalThis.process;
const worker = { location: { href: pathToFileURL(file('engine_bundle.node.js')).href } };
Object.assign(globalThis, { self: worker, WorkerGlobalScope: Object, XMLHttpRequest: FileRequest, importScripts: () => {}, process: undefined });
vm.runInThisContext(fs.readFileSync(file('engine_bundle.node.js'), 'utf8'));
globalThis.process = node;

const { EngineBase } = await import(pathToFileURL(file('engine.mjs')).href);
const { port1: here, port2: there } = new MessageChannel();

class Engine extends EngineBase {
    mode = 'WASM';
    id = 'trace_processor';

    rpcSendRequestBytes(data) {
        here.postMessage(data);
    }
}

const engine = new Engine();
here.onmessage = ({ data }) => engine.onRpcResponseBytes(new Uint8Array(data));
worker.onmessage({ data: there });

await engine.parse(new Uint8Array(fs.readFileSync(trace)));
await engine.notifyEof();
const result = await engine.query(fs.readFileSync(0, 'utf8'));
const names = result.columns();
const rows = [];
for (const row = result.iter(Object.fromEntries(names.map((name) => [name, undefined]))); row.valid(); row.next()) {
    rows.push(Object.fromEntries(names.map((name) => [name, row.get(name)])));
}
console.log(JSON.stringify(rows, (key, value) => (typeof value === 'bigint' ? Number(value) : value)));
here.close();
