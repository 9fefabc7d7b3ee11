#!/bin/bash
# Llama 3 70B with Megatron-LM on 8 nodes of 8 GPUs: a job as people have it, to be read by `meshwright plan --job`
TP=${TP:-8}
PP=${PP:-4}
NODES=${SLURM_NNODES:-8}
MODEL=(--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention
  --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope
  --untie-embeddings-and-output-weights --vocab-size 128256 --seq-length 8192 --max-position-embeddings 8192)
TRAINING=(--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --overlap-grad-reduce
  --overlap-param-gather --lr 1.5e-4 --train-iters 5000)
if [[ $PP -gt 1 ]]; then
  TRAINING+=(--recompute-granularity full --recompute-method uniform --recompute-num-layers 1)
fi
torchrun --nnodes $NODES --nproc_per_node 8 pretrain_gpt.py "${MODEL[@]}" "${TRAINING[@]}" \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel
