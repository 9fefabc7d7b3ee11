/* bfloat16 in C: the upper half of a float. */
#include <stdint.h>
#include <string.h>

static inline float bf16_up(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint16_t bf16_down(float f) { /* to nearest, ties to even; NaN stays NaN */
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint16_t rounded = (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    return (bits & 0x7FFFFFFF) > 0x7F800000 ? (uint16_t)((bits >> 16) | 0x40) : rounded;
}
