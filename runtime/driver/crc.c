/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver.h"

/* Four bits at a time: 64 bytes of table instead of the usual 1024. */
static const uint32_t crc_table[16] = {
    0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
    0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
};

static uint32_t with_byte(uint32_t crc, uint32_t byte) {
    crc ^= byte;
    crc = crc >> 4 ^ crc_table[crc & 0xFu];
    return crc >> 4 ^ crc_table[crc & 0xFu];
}

uint32_t neutron_microcode_crc(const void *microcode, uint32_t size_bytes) {
    const uint8_t *bytes = microcode;
    const uint32_t own = offsetof(NeutronHeader, microcode_crc);
    uint32_t crc = UINT32_MAX;
    for (uint32_t i = 0; i < size_bytes; ++i) crc = with_byte(crc, i - own < 4 ? 0 : bytes[i]);
    return ~crc;
}
