// SPDX-License-Identifier: BSD-3-Clause
#include "Arduino.h"

extern "C" void console_print(const char *text);

SerialPort Serial;

void SerialPort::print(const char *text) { console_print(text); }

int main() {
    setup();
    loop();
    return 0;
}
