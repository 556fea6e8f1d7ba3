/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_H
#define APP_H

void BOARD_InitHardware(void);

#endif
