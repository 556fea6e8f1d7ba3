/* SPDX-License-Identifier: BSD-3-Clause */
/* What only an i.MX 95 board can tell about matrix products on its NPU. Usage:
 *
 *     board_check [-o check.json] [--quick] [libNeutronDriver.so]
 *
 * Loads the driver's library (the given one, else one beside the program, else the system's), runs the jobs of cases.h and
 * writes what it sees as JSON. It draws no conclusion: `openneutron board read` does. Exit code 0: the file was written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "NeutronMatmul.h"
#include "cases.h"

#define HEADER_BYTES 64
#define LINE_BYTES 64
#define FACTOR_ONE 0x000F8000u
#define STEP_BYTES 256
#define DECODE_STEP_BYTES 8192
#define MACS 16
#define REPEATS 9
#define MIB (UINT64_C(1) << 20)

static struct {
    NeutronError (*init)(void);
    NeutronError (*allocate)(uint64_t size, void **buffer, bool userspace);
    NeutronError (*clean)(const void *address, int size);
    NeutronError (*matmul)(const void *info, int info_size, const void *in, int in_size, const void *out, int out_size,
                           int slot);
} driver;

static uint8_t *memory;
static uint64_t memory_bytes;
static FILE *json;
static bool quick;

/* ---- values -------------------------------------------------------------------------------------------------------- */

/* Byte i of the data of a case's part. openneutron/features/board/cases.py computes the same. */
static uint8_t byte_of(uint32_t i, uint32_t seed) {
    uint32_t x = i * UINT32_C(0x9E3779B1) + seed * UINT32_C(0x85EBCA77);
    x ^= x >> 15;
    x *= UINT32_C(0x2C1B3C6D);
    x ^= x >> 12;
    x *= UINT32_C(0x297A2D39);
    x ^= x >> 15;
    return (uint8_t)(x >> 24);
}

enum { PART_A = 1, PART_WEIGHTS = 2, PART_BIAS = 3, PART_SCALES = 4, PART_SIGNS = 5 };

static uint32_t seed_of(const Case *c, uint32_t part) { return c->seed * 8 + part; }

static uint64_t weighted_sum(uint64_t sum, uint64_t i, uint32_t value) { return sum + value * (2 * i + 1); }

/* ---- one product --------------------------------------------------------------------------------------------------- */

/* Offsets in the buffer. The header lies at 0. */
typedef struct {
    int64_t a, weights, bias, factors, result, scales, signs, ones, lengths, end;
} Places;

static int64_t lines(int64_t size) { return (size + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES; }

static Places places_of(const Case *c) {
    const int64_t m = c->m, k = c->k, n = c->n, groups = c->group != 0 ? n * k / c->group : 0;
    Places p;
    p.a = HEADER_BYTES;
    p.weights = p.a + lines(m * k);
    p.bias = p.weights + lines(c->group != 0 ? n * k / 2 : n * k);
    p.factors = p.bias + lines(n * 4);
    p.scales = p.factors + lines(n * 4);
    p.signs = p.scales + lines(groups * 2);
    p.ones = p.signs + lines(groups);
    p.lengths = p.ones + LINE_BYTES;
    p.result = p.lengths + lines(n / MACS * 4);
    p.end = p.result + lines(m * n * 4);
    return p;
}

static int64_t in_turn(int64_t at, int64_t run, int64_t core, int64_t cores, int64_t step) {
    const int64_t whole = run / step * step;
    if (at >= whole) return whole * cores + core * (run - whole) + at - whole;
    return at / step * step * cores + core * step + at % step;
}

/* The decode scale of a group: a mantissa of 6 bits from 32 up and a shift of 2 to 5. */
static uint16_t scale_of(const Case *c, int64_t group) {
    const uint8_t byte = byte_of((uint32_t)group, seed_of(c, PART_SCALES));
    return (uint16_t)((2 + (byte >> 6)) << 10 | 32 | (byte & 31));
}

static int32_t sign_of(const Case *c, int64_t group) { return byte_of((uint32_t)group, seed_of(c, PART_SIGNS)) & 1; }

/* The int8 weight to which the NPU decodes a nibble. */
static int32_t decoded(int32_t nibble, int32_t sign, uint16_t scale) {
    const int32_t weight = (nibble < 8 ? nibble : nibble - 16) + sign, shift = scale >> 10;
    const int32_t doubled = weight * (scale & 1023) * 2 + (1 << shift), divisor = 1 << (shift + 1);
    const int32_t floor = (doubled - ((doubled % divisor) + divisor) % divisor) / divisor;
    return floor < -128 ? -128 : floor > 127 ? 127 : floor;
}

/* The weights of a row as the NPU multiplies them. */
static void row_of(const Case *c, int64_t n, int16_t *row) {
    const uint32_t seed = seed_of(c, PART_WEIGHTS), first = (uint32_t)(n * c->k);
    if (c->group == 0) {
        for (int32_t k = 0; k < c->k; ++k) {
            const int8_t weight = (int8_t)byte_of(first + (uint32_t)k, seed);
            row[k] = weight == -128 ? -127 : weight;
        }
        return;
    }
    for (int32_t k = 0; k < c->k; k += c->group) {
        const int64_t group = (n * c->k + k) / c->group;
        int16_t of[16];
        for (int32_t nibble = 0; nibble < 16; ++nibble)
            of[nibble] = (int16_t)decoded(nibble, sign_of(c, group), scale_of(c, group));
        for (int32_t i = 0; i < c->group; ++i)
            row[k + i] = of[byte_of(first + (uint32_t)(k + i), seed) >> 4];
    }
}

static void put_int8(const Case *c, uint8_t *to) {
    const int64_t run = (int64_t)c->channels * c->k;
    for (int64_t n = 0; n < c->n; ++n) {
        const int64_t core = n / c->channels % c->cores, channel = n % c->channels;
        uint8_t *block = to + n / (c->channels * c->cores) * run * c->cores;
        const uint32_t seed = seed_of(c, PART_WEIGHTS);
        for (int64_t k = 0; k < c->k; k += MACS) {
            uint8_t *sixteen = to + n * c->k + k;
            if (c->kind > 0) sixteen = block + in_turn(channel * c->k + k, run, core, c->cores, STEP_BYTES);
            for (int64_t i = 0; i < MACS; ++i) {
                const uint8_t byte = byte_of((uint32_t)(n * c->k + k + i), seed);
                sixteen[i] = byte == 0x80 ? 0x81 : byte;
            }
        }
    }
}

static void put_int4(const Case *c, const Places *p) {
    const int64_t groups = c->k / c->group, channels = c->channels, cores = c->cores;
    const int64_t run = channels * c->k / 2, values = channels * groups;
    const int64_t sign_step = values < DECODE_STEP_BYTES ? values : DECODE_STEP_BYTES;
    const int64_t scale_step = values < DECODE_STEP_BYTES / 2 ? values : DECODE_STEP_BYTES / 2;
    const uint32_t seed = seed_of(c, PART_WEIGHTS);
    for (int64_t n = 0; n < c->n; ++n) {
        const int64_t core = n / channels % cores, channel = n % channels, block = n / (channels * cores);
        for (int64_t k = 0; k < c->k; k += MACS) {
            uint8_t *eight = memory + p->weights + block * run * cores +
                             in_turn((k * channels + channel * MACS) / 2, run, core, cores, STEP_BYTES / 2);
            for (int64_t i = 0; i < MACS / 2; ++i) {
                const uint32_t first = (uint32_t)(n * c->k + k + 2 * i);
                eight[i] = (uint8_t)(byte_of(first, seed) >> 4 | (byte_of(first + 1, seed) & 0xF0));
            }
        }
        for (int64_t g = 0; g < groups; ++g) {
            const int64_t value = g * channels + channel, first = block * values * cores;
            const uint16_t scale = scale_of(c, n * groups + g);
            memcpy(memory + p->scales + 2 * (first + in_turn(value, values, core, cores, scale_step)), &scale, 2);
            memory[p->signs + first + in_turn(value, values, core, cores, sign_step)] =
                (uint8_t)sign_of(c, n * groups + g);
        }
    }
    memset(memory + p->ones, 1, 16);
    for (int64_t block = 0; block < c->n / (channels * cores); ++block) {
        const int32_t length = (int32_t)(run * cores);
        memcpy(memory + p->lengths + block * 4, &length, 4);
    }
}

static int32_t bias_of(const Case *c, int64_t n) { return ((int32_t)byte_of((uint32_t)n, seed_of(c, PART_BIAS)) - 128) * 37; }

static void put_operands(const Case *c, const Places *p) {
    for (int64_t i = 0; i < (int64_t)c->m * c->k; ++i)
        memory[p->a + i] = byte_of((uint32_t)i, seed_of(c, PART_A));
    if (c->group != 0)
        put_int4(c, p);
    else
        put_int8(c, memory + p->weights);
    for (int64_t n = 0; n < c->n; ++n) {
        const int32_t bias = bias_of(c, n);
        const uint32_t factor = FACTOR_ONE;
        memcpy(memory + p->bias + n * 4, &bias, 4);
        memcpy(memory + p->factors + n * 4, &factor, 4);
    }
}

static bool is_signed(int32_t kind) { return kind == 2 || kind == -2; }

/* The header of a case; kind 0 is the form of the releases without a kind. */
static void put_header(const Case *c, const Places *p, int32_t result_bytes, int32_t zero_point) {
    int32_t words[16] = {c->kind, 0, c->m, c->k, c->n, (int32_t)p->a, (int32_t)p->weights, (int32_t)p->bias,
                         (int32_t)p->factors, (int32_t)p->result, zero_point, result_bytes, 8, -1, 0, 0};
    if (c->group != 0) {
        words[0] = c->kind == 0 ? 0 : (int32_t)p->lengths;
        words[1] = (int32_t)p->signs;
        words[4] = c->kind == 0 ? c->n : c->n | 1 << 18;
        words[10] = c->kind;
        words[12] = 4;
        words[13] = c->group;
        words[14] = (int32_t)p->scales;
        words[15] = (int32_t)p->ones;
    }
    memcpy(memory, words, sizeof words);
}

static NeutronError clean_range(int64_t start, int64_t size) { return driver.clean(memory + start, (int)size); }

static NeutronError run(const Case *c, const Places *p, int32_t result_bytes) {
    return driver.matmul(memory, HEADER_BYTES, memory + p->a, c->m * c->k, memory + p->result, c->m * c->n * result_bytes, 0);
}

static bool fits(const Places *p) { return (uint64_t)p->end <= memory_bytes && p->end < INT32_MAX; }

/* Fills the result with a pattern that no result is likely to have, so that a job that writes nothing is seen. */
static void prepare(const Case *c, const Places *p) {
    put_operands(c, p);
    memset(memory + p->result, 0xA5, (size_t)(p->end - p->result));
    put_header(c, p, 4, 0);
    clean_range(0, p->end);
}

static uint64_t sum_of_weights(const Case *c, const Places *p) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < p->bias - p->weights; ++i)
        if (i < (c->group != 0 ? c->n * (int64_t)c->k / 2 : c->n * (int64_t)c->k))
            sum = weighted_sum(sum, (uint64_t)i, memory[p->weights + i]);
    return sum;
}

static int32_t exact(const int16_t *a, const int16_t *row, int64_t k, int32_t bias) {
    int32_t sum = bias; /* K * 255 * 128 is below 2^31 */
    for (int64_t i = 0; i < k; ++i)
        sum += a[i] * row[i];
    return sum;
}

static const char *separator = "";

/* Which forms of jobs gave right results, of int8 and of int4 weights: those with a kind, and those without. */
static struct {
    bool with_kind, without_kind;
} forms[2];

/* Whether a case's form is one that gave right results. A case of kind -1, or of int4 weights, runs without a kind where
 * those with a kind did not. */
static bool is_chosen(Case *c) {
    const int int4 = c->group != 0;
    if (forms[int4].with_kind) return true;
    if (!forms[int4].without_kind || (c->kind != -1 && !int4)) return false;
    c->kind = 0;
    return true;
}

/* Runs a case and writes its row: kind, M, K, N, group, error, wrong results, first wrong one, its value and the right one. */
static bool check(const Case *c) {
    const Places p = places_of(c);
    if (!fits(&p)) {
        fprintf(json, "%s\n  [%d,%d,%d,%d,%d,\"too large\",0]", separator, c->kind, c->m, c->k, c->n, c->group);
        separator = ",";
        return false;
    }
    memset(memory, 0, (size_t)p.end); /* what the last case left behind is no result of this one */
    prepare(c, &p);
    const bool packed_right = c->weights_sum == 0 || sum_of_weights(c, &p) == c->weights_sum;
    const NeutronError error = run(c, &p, 4);
    const int64_t k_all = c->k, a_size = c->m * k_all;
    int16_t *a = malloc((size_t)(a_size + k_all) * sizeof *a);
    if (a == NULL) {
        fprintf(stderr, "board_check: no memory\n");
        exit(2);
    }
    int16_t *row = a + a_size;
    int64_t wrong = 0, first = -1;
    int32_t found_first = 0, exact_first = 0;
    uint64_t sum = 0;
    for (int64_t i = 0; i < a_size; ++i)
        a[i] = is_signed(c->kind) ? (int16_t)(int8_t)memory[p.a + i] : (int16_t)memory[p.a + i];
    for (int64_t n = 0; n < c->n; ++n) {
        row_of(c, n, row);
        for (int64_t m = 0; m < c->m; ++m) {
            const int64_t i = m * c->n + n;
            const int32_t right = exact(a + m * k_all, row, k_all, bias_of(c, n));
            int32_t found;
            memcpy(&found, memory + p.result + i * 4, 4);
            sum = weighted_sum(sum, (uint64_t)i, (uint32_t)right);
            if (found != right && wrong++ == 0) {
                first = i;
                found_first = found;
                exact_first = right;
            }
        }
    }
    free(a);
    fprintf(json, "%s\n  [%d,%d,%d,%d,%d,%" PRId32 ",%" PRId64, separator, c->kind, c->m, c->k, c->n, c->group, error, wrong);
    if (wrong != 0) fprintf(json, ",%" PRId64 ",%" PRId32 ",%" PRId32, first, found_first, exact_first);
    fprintf(json, "]");
    separator = ",";
    if (!packed_right || sum != c->results_sum) {
        fprintf(stderr, "board_check: M %d, K %d, N %d: the program's own values are not those it was made with\n", c->m, c->k,
                c->n);
        exit(3);
    }
    printf("kind %2d, M %4d, K %5d, N %5d%s: %s\n", c->kind, c->m, c->k, c->n, c->group != 0 ? ", int4" : "",
           error != 0 ? "error" : wrong != 0 ? "wrong" : "right");
    fflush(stdout);
    return error == 0 && wrong == 0;
}

/* Tries a form of jobs; one without a kind only where those with a kind are wrong, so that no other form than the driver's
 * own is tried without need. */
static void try_form(const Case *c) {
    const int int4 = c->group != 0;
    if (c->kind != 0)
        forms[int4].with_kind |= check(c);
    else if (!forms[int4].with_kind)
        forms[int4].without_kind = check(c);
}

static void check_if_chosen(const Case *given) {
    Case c = *given;
    if (is_chosen(&c)) check(&c);
}

/* ---- rounding ------------------------------------------------------------------------------------------------------ */

/* A product of zeros: its results are the biases, times one factor. */
static void rescale(const Rescale *r) {
    Case c = {r->kind, 1, MACS, RESCALE_N, 0, r->channels, r->cores, 0, 0, 0};
    const Places p = places_of(&c);
    if (!is_chosen(&c) || !fits(&p)) return;
    memset(memory, 0, (size_t)p.end);
    for (int64_t n = 0; n < RESCALE_N; ++n) {
        const int32_t bias = r->first + (int32_t)n * r->step;
        memcpy(memory + p.bias + n * 4, &bias, 4);
        memcpy(memory + p.factors + n * 4, &r->factor, 4);
    }
    put_header(&c, &p, r->result_bytes, r->zero_point);
    clean_range(0, p.end);
    const NeutronError error = run(&c, &p, r->result_bytes);
    fprintf(json, "%s\n  {\"kind\":%d,\"result_bytes\":%d,\"zero_point\":%d,\"factor\":%" PRIu32
                  ",\"first\":%" PRId32 ",\"step\":%" PRId32 ",\"error\":%" PRId32 ",\"results\":[",
            separator, c.kind, r->result_bytes, r->zero_point, r->factor, r->first, r->step, error);
    separator = ",";
    for (int64_t n = 0; n < RESCALE_N; ++n) {
        int32_t value;
        if (r->result_bytes == 4)
            memcpy(&value, memory + p.result + n * 4, 4);
        else if (is_signed(c.kind))
            value = (int8_t)memory[p.result + n];
        else
            value = memory[p.result + n];
        fprintf(json, "%s%" PRId32, n == 0 ? "" : ",", value);
    }
    fprintf(json, "]}");
}

/* ---- time ---------------------------------------------------------------------------------------------------------- */

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Writes kind, M, K, N, group, error, and the median and the least nanoseconds of several runs. Values are zeros. */
static void measure(const Case *given) {
    Case copy = *given;
    const Case *const c = &copy;
    const Places p = places_of(c);
    if (!is_chosen(&copy) || !fits(&p)) return;
    memset(memory, 0, (size_t)p.end);
    memset(memory + p.ones, 1, 16);
    for (int64_t n = 0; n < c->n; ++n)
        memcpy(memory + p.factors + n * 4, &(uint32_t){FACTOR_ONE}, 4);
    if (c->group != 0) {
        const int32_t length = (int32_t)((int64_t)c->channels * c->cores * c->k / 2);
        for (int64_t block = 0; block < c->n / ((int64_t)c->channels * c->cores); ++block)
            memcpy(memory + p.lengths + block * 4, &length, 4);
    }
    put_header(c, &p, 4, 0);
    clean_range(0, p.end);
    NeutronError error = run(c, &p, 4);
    int64_t times[REPEATS];
    int count = 0;
    const int repeats = quick ? 3 : REPEATS;
    while (error == 0 && count < repeats) {
        const int64_t start = now_ns();
        error = run(c, &p, 4);
        times[count++] = now_ns() - start;
    }
    qsort(times, (size_t)count, sizeof *times, ascending);
    fprintf(json, "%s\n  [%d,%d,%d,%d,%d,%" PRId32 ",%" PRId64 ",%" PRId64 "]", separator, c->kind, c->m, c->k, c->n, c->group,
            error, count > 0 ? times[count / 2] : 0, count > 0 ? times[0] : 0);
    separator = ",";
}

static void measure_clean(void) {
    int64_t times[REPEATS];
    const int64_t size = memory_bytes < MIB ? (int64_t)memory_bytes : (int64_t)MIB;
    for (int i = 0; i < REPEATS; ++i) {
        memset(memory, i, (size_t)size);
        const int64_t start = now_ns();
        clean_range(0, size);
        times[i] = now_ns() - start;
    }
    qsort(times, REPEATS, sizeof *times, ascending);
    fprintf(json, ",\n \"clean\":{\"bytes\":%" PRId64 ",\"ns\":%" PRId64 "}", size, times[REPEATS / 2]);
}

/* ---- surroundings -------------------------------------------------------------------------------------------------- */

static void put_text(const char *text) {
    fputc('"', json);
    for (; *text != '\0'; ++text) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(json, "\\%c", c);
        else if (c < 32 || c > 126)
            fprintf(json, "\\u%04x", c);
        else
            fputc(c, json);
    }
    fputc('"', json);
}

/* A file's path, size and FNV-1a, as a JSON object; nothing where it can't be read. */
static void put_file(const char *path, const char *before) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return;
    uint64_t hash = UINT64_C(0xCBF29CE484222325), size = 0;
    int c;
    while ((c = fgetc(file)) != EOF) {
        hash = (hash ^ (unsigned char)c) * UINT64_C(0x100000001B3);
        ++size;
    }
    fclose(file);
    fprintf(json, "%s{\"path\":", before);
    put_text(path);
    fprintf(json, ",\"bytes\":%" PRIu64 ",\"fnv1a\":\"%016" PRIx64 "\"}", size, hash);
}

static void put_system(const char *library) {
    struct utsname name;
    if (uname(&name) != 0) memset(&name, 0, sizeof name);
    fprintf(json, " \"kernel\":");
    put_text(name.release);
    fprintf(json, ",\n \"machine\":");
    put_text(name.machine);
    char line[256] = "";
    FILE *file = fopen("/etc/os-release", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && strncmp(line, "PRETTY_NAME=", 12) != 0) line[0] = '\0';
    if (file != NULL) fclose(file);
    line[strcspn(line, "\n")] = '\0';
    fprintf(json, ",\n \"system\":");
    put_text(line[0] != '\0' ? line + 12 : "");
    fprintf(json, ",\n \"library\":");
    put_file(library, "");
    fprintf(json, ",\n \"firmware\":[");
    static const char *const firmwares[] = {"/lib/firmware/NeutronFirmware.elf", "/lib/firmware/NeutronFwllm.elf"};
    const char *before = "";
    for (size_t i = 0; i < sizeof firmwares / sizeof *firmwares; ++i) {
        put_file(firmwares[i], before);
        before = access(firmwares[i], R_OK) == 0 ? "," : before;
    }
    fprintf(json, "]");
}

static bool find(void *library, const char *name, void *function, size_t size) {
    void *found = dlsym(library, name);
    memcpy(function, &found, size); /* ISO C has no conversion between the two kinds of pointers */
    if (found == NULL) fprintf(stderr, "board_check: the library has no function %s\n", name);
    return found != NULL;
}

#define FIND(library, name, function) find(library, name, &(function), sizeof(function))

/* Loads the library and writes its path. */
static bool load(const char *given, char *path, size_t size) {
    char beside[512];
    const ssize_t length = readlink("/proc/self/exe", beside, sizeof beside - 32);
    beside[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(beside, '/');
    snprintf(slash != NULL ? slash + 1 : beside, 32, "libNeutronDriver.so");
    const char *name = given != NULL ? given : access(beside, R_OK) == 0 ? beside : "libNeutronDriver.so";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "board_check: %s\n", dlerror());
        return false;
    }
    void *init = dlsym(library, "neutronInit"); /* older libraries need not have it */
    memcpy(&driver.init, &init, sizeof init);
    if (!FIND(library, "allocateBuffer", driver.allocate) || !FIND(library, "clean_cache", driver.clean) ||
        !FIND(library, "matmul", driver.matmul))
        return false;
    Dl_info info;
    void *address;
    memcpy(&address, &driver.matmul, sizeof address);
    snprintf(path, size, "%s", dladdr(address, &info) != 0 ? info.dli_fname : name);
    return true;
}

/* The largest buffer among a few sizes; the check works in it. Writes each size that was asked for. */
static bool allocate(void) {
    static const int sizes_mib[] = {3584, 3072, 2560, 2048, 1536, 1024, 768, 512, 384, 256, 192, 128, 96, 64, 48, 32, 16, 8};
    fprintf(json, ",\n \"memory\":{\"refused_mib\":[");
    const char *before = "";
    for (size_t i = 0; i < sizeof sizes_mib / sizeof *sizes_mib; ++i) {
        void *buffer = NULL;
        if (driver.allocate((uint64_t)sizes_mib[i] * MIB, &buffer, true) == ENONE && buffer != NULL) {
            memory = buffer;
            memory_bytes = (uint64_t)sizes_mib[i] * MIB;
            fprintf(json, "],\"largest_mib\":%d}", sizes_mib[i]);
            return true;
        }
        fprintf(json, "%s%d", before, sizes_mib[i]);
        before = ",";
    }
    fprintf(json, "],\"largest_mib\":0}");
    return false;
}

static void all(const char *name, const Case *cases, size_t count, void (*each)(const Case *)) {
    fprintf(json, ",\n \"%s\":[", name);
    separator = "";
    for (size_t i = 0; i < count; ++i) {
        each(&cases[i]);
        fflush(json); /* a job that never ends leaves what was seen before it */
    }
    fprintf(json, "]");
}

int main(int argc, char **argv) {
    const char *to = "check.json", *given = NULL;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            to = argv[++i];
        else if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else
            given = argv[i];
    }
    char path[512];
    if (!load(given, path, sizeof path)) return 1;
    json = fopen(to, "w");
    if (json == NULL) {
        fprintf(stderr, "board_check: %s can't be written: %s\n", to, strerror(errno));
        return 1;
    }
    fprintf(json, "{\"openneutron_board\":%d,\n", CASES_VERSION);
    put_system(path);
    if (driver.init != NULL) fprintf(json, ",\n \"init\":%" PRId32, driver.init());
    const bool has_memory = allocate();
    if (has_memory) {
        all("forms", form_cases, sizeof form_cases / sizeof *form_cases, try_form);
        all("cases", cases, sizeof cases / sizeof *cases, check_if_chosen);
        fprintf(json, ",\n \"rescaled\":[");
        separator = "";
        for (size_t i = 0; i < sizeof rescales / sizeof *rescales; ++i)
            rescale(&rescales[i]);
        fprintf(json, "]");
        all("times", timed_cases, quick ? QUICK_TIMES : sizeof timed_cases / sizeof *timed_cases, measure);
        measure_clean();
    }
    fprintf(json, "\n}\n");
    const bool written = fclose(json) == 0;
    printf("%s\n", has_memory ? "done" : "no contiguous memory is to be had: no job ran");
    printf("%s: copy it to your computer and run `openneutron board read %s`\n", to, to);
    return written ? 0 : 1;
}
