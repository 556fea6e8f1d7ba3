/* SPDX-License-Identifier: BSD-3-Clause */
#include "board.h"

int main(void) { return selfcheck(); }
