"""A Qwen3-VL checkpoint of a few thousand random weights in the published layout."""

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
]


def write(folder, seed=0):
    """Weights under ``model.``, a tokenizer of single letters, the preprocessor's file."""
    letters = [chr(c) for c in range(32, 127)] + ["\n"]
    tokenizer = Tokenizer(WordLevel({c: i for i, c in enumerate(letters)}, unk_token=" "))
    tokenizer.pre_tokenizer = Split("", "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=" ")
    fast.add_special_tokens({"additional_special_tokens": SPECIAL})
    fast.save_pretrained(folder)
    text = {
        "vocab_size": len(fast), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2], "mrope_interleaved": True,
        },
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32,
        "num_position_embeddings": 16, "deepstack_visual_indexes": [0], "patch_size": 16,
    }  # fmt: skip
    ids = dict(zip(SPECIAL, fast.convert_tokens_to_ids(SPECIAL), strict=True))
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(config)
    model.save_pretrained(folder)
    processor = Qwen2VLImageProcessorPil(
        patch_size=16,
        image_mean=[0.5, 0.4, 0.3],
        image_std=[0.5, 0.6, 0.7],
        size={"shortest_edge": 1024, "longest_edge": 16384},
    )
    processor.save_pretrained(folder)
    return model.model.eval(), processor, fast
