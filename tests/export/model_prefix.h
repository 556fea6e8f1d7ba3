/* SPDX-License-Identifier: BSD-3-Clause */
/* OF(_init) is the name of a model's function, type or constant: MODEL is the model's prefix, a definition of the build. */
#define PASTE(prefix, suffix) prefix##suffix
#define PREFIXED(prefix, suffix) PASTE(prefix, suffix)
#define OF(suffix) PREFIXED(MODEL, suffix)
