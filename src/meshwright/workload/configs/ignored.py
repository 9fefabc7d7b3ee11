"""Keys of config.json files that change no size: tokens, rotations, dropout, generation, how files were stored."""

import re

PATTERNS = re.compile(
    r"""
    _.*                                              # private to the library
    |.*_token_(id|index|ids)|.*token_id|(im|eod|pad)_.*id|(bos|eos|pad|unk|sep|cls|mask)_.*
    |.*(dropout|drop|_pdrop|drop_rate|drop_path).*|.*(dropout_prob|_prob)
    |.*(_eps|epsilon)|eps
    |(rope|rotary|yarn|mrope)_?.*|.*_rope|attn_rotary_.*|mla_scale_.*|.*rope_(theta|scaling|parameters|type|freq|interleave.*)|partial_rotary_(factor|percent)
    |.*(hidden_act|activation|activation_function|act_fn|_act|act)
    |.*(initializer|init_std|init_range|init_method|init_factor|init_scale|_init).*
    |.*(softcap|softcapping|soft_cap|logit_scale|logits_scaling|multiplier|multipliers|_scalar|_scale|scaling_factor)
    |.*(loss_coef|loss_weight|loss_factor|aux_loss.*|loss_type|loss_function|z_loss.*|jitter.*|_coefficient)
    |.*(dtype|transformers_version|quantization_config|compression_config|format)
    |.*(attn_implementation|use_flash_attn|use_kernels?|_kernels|pretraining_tp|tensor_parallel.*|gradient_checkpointing)
    |output_.*|return_.*|use_cache|use_return_dict|cache_.*|.*_cache_.*|id2label|label2id|problem_type|auto_map
    |architectures|model_type|torchscript|pruned_heads|finetuning_task|task_specific_params|tokenizer_class|prefix
    |(do_sample|num_beams?|num_beam_groups|temperature|top_k|top_p|typical_p|max_length|min_length|length_penalty)
    |(early_stopping|repetition_penalty|diversity_penalty|no_repeat_ngram_size|num_return_sequences|bad_words_ids)
    |(remove_invalid_values|exponential_decay_length_penalty|suppress_tokens|begin_suppress_tokens|forced_.*)
    |(norm_topk_prob|scoring_func|score_func(tion)?|topk_method|topk_group|n_group|num_expert_group|seq_aux|ep_size)
    |(routed_scaling_factor|router_.*|moe_router_.*|moe_renormalize|use_grouped_mm|norm_min|expert_selection.*|use_grouped_topk)
    |(query_pre_attn_scalar|attention_multiplier|residual_multiplier|attn_(temperature|scale).*|floor_scale)
    |(is_decoder|is_encoder_decoder|add_cross_attention|cross_attention_hidden_size|tie_encoder_decoder)
    |(chunk_size_feed_forward|time_step_.*|residual_in_fp32|rescale_prenorm_residual|scale_.*|reorder_and_upcast_attn)
    |(norm_type|embd_pdrop|summary_.*|attention_types?|use_bidirectional_attention|max_window_layers|(num_)?logits_to_keep)
    |(swiglu_(alpha|limit)|norm_before_gate|mamba_norm_before_gate|use_mambapy|use_associative_scan|layerscale_value)
    |(attention_softmax_in_fp32|enable_lm_head_fp32|attention_softmax|softmax_.*|no_rope_layers?|no_rope_layer_interval|use_rope|nope_.*)
    |(use_sliding_window|attention_chunk_size|position_embedding_type|original_max_position_embeddings|rms_norm)
    |(vision|image|video|audio|sound|boi|eoi|boa|eoa)_(start|end|token|soft|seq|size|split|grid|aspect|newline).*
    |(mm_tokens_per_image|num_image_tokens|image_aspect_ratio|image_grid_pinpoints|torch_dtype|dtype|dynamic_image_size|template)
    |(ignore_index|is_composition|tokenizer_(name|type|path)|embeddings_scale_by_sqrt_dim|force_bos_token_(insert|to_be_generated))
    |(tokens_per_second|spatial_.*|force_image_size|ps_version|downsample_ratio|max_dynamic_patch|min_dynamic_patch)
    # generation
    |(max_new_tokens|min_new_tokens|max_time|max_cache_len|stop_strings|min_p|top_h|epsilon_cutoff|eta_cutoff)
    |(encoder_(repetition_penalty|no_repeat_ngram_size)|renormalize_logits|sequence_bias|token_healing|guidance_scale)
    |(watermarking_config|compile_config|disable_compile|continuous_batching_config|low_memory|penalty_alpha)
    |(dola_layers|constraints|force_words_ids|prefill_chunk_size|prompt_lookup_num_tokens|max_matching_ngram_size)
    |(is_assistant|num_assistant_tokens.*|assistant_.*|target_lookbehind|speculation_type|chat_template|generation_config)
    # what programs that store or train a model leave in its file
    |(unsloth_.*|transformers\.js_config|quantization|sparsity_config|(use_)?(fp16|bf16|bfloat16)|name_or_path|license)
    |(torch_compile|neftune_noise_alpha|use_liger_kernel|use_flash_attention_2|seed|custom_pipelines)
    """,
    re.VERBOSE,
)


# values with which such keys do change a size; (): all. Version 4 of transformers takes heads out, adds tables of
# relative places (bert: modeling_bert.py, BertSelfAttention) and shares the weights of a pair; version 5 does not
CHANGING: dict[str, tuple[object, ...]] = {
    "pruned_heads": (),
    "tie_encoder_decoder": (),
    "position_embedding_type": ("relative_key", "relative_key_query", "alibi"),
}


def is_ignored(key: str, value: object) -> bool:
    """Return whether a key is known to change no parameter count and no FLOPs with its value."""
    changing = CHANGING.get(key)
    plain = not value or changing is None or (changing != () and value not in changing)
    return plain and PATTERNS.fullmatch(key) is not None
