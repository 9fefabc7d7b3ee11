"""Bytes of an element by its type, and sizes that are made of them: the one place that has them. Imports nothing.

Whole numbers where an element is a whole number of bytes; what multiplies them says how many elements there are.
"""

DOUBLE_BYTES, SINGLE_BYTES, HALF_BYTES, LOW_BYTES = 8, 4, 2, 1  # float64; float32; bfloat16, float16; any float8
NIBBLE_BYTES = 0.5  # of four bits
LONG_BYTES, BOOL_BYTES = 8, 1  # int64, in which torch has indices and counts; a mask's elements
TYPE_NAMES = {SINGLE_BYTES: "float32", HALF_BYTES: "bfloat16", LOW_BYTES: "float8"}  # the usual one of each size
# precisions of a run by the bytes of an element that its products read; scales of blocks are not counted
PRECISION_BYTES = {
    "fp32": float(SINGLE_BYTES),
    **dict.fromkeys(("fp16", "bf16"), float(HALF_BYTES)),
    **dict.fromkeys(("fp8", "mxfp8"), float(LOW_BYTES)),
    **dict.fromkeys(("fp4", "nvfp4"), NIBBLE_BYTES),
}
# of a parameter under AdamW in single precision: its two moments; with the weight, or its master copy; and the gradient
MOMENTS_BYTES = 2 * SINGLE_BYTES
STATES_BYTES = SINGLE_BYTES + MOMENTS_BYTES
UPDATED_BYTES = SINGLE_BYTES + STATES_BYTES
