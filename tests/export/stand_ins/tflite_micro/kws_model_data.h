/* SPDX-License-Identifier: BSD-3-Clause */
extern const unsigned char kws_model_data[];
