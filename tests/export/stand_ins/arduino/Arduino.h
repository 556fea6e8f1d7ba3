/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for an Arduino core's header: the declarations that the sketch uses. A sketch is C++, and begins with this file. */
#ifndef ARDUINO_H
#define ARDUINO_H

#include <stdint.h>

class SerialPort {
public:
    void begin(unsigned long) {}
    explicit operator bool() const { return true; }
    void print(const char *text);
};

extern SerialPort Serial;

void setup();
void loop();

#endif
