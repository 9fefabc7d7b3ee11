"""Classes with another output than that of their model type: vectors alone, or classes of a sequence or of tokens."""

import re

import msgspec

from ...units import counted
from ..architecture import Architecture
from ..kinds import Attention, runs_of
from .decoders import summary, switch
from .families import DECODERS
from .others import PAIRS
from .pairs import BOTH_SIDES
from .reader import ConfigReader
from .towers import NO_OUTPUT
from .wav2vec import SOUND, with_classes

BARE = "Model"
OF_SEQUENCE = ("ForSequenceClassification", "ForMultipleChoice")
OF_TOKENS = ("ForTokenClassification", "ForQuestionAnswering", "ForAudioFrameClassification")
OF_SOUND = ("ForSequenceClassification", "ForAudioFrameClassification")
OTHERS = (BARE, *OF_SEQUENCE, *OF_TOKENS)
NO_WORDS = ("layoutlmv3", "dinov3_vit")  # types without a class of words or of images
# encoders whose bare model projects the first token, and those whose does not; of words, images and sound
POOLED = frozenset(
    {
        *("bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert", "data2vec-text"),
        *("longformer", "ernie", "megatron-bert", "roc_bert", "albert", "esm", "mpnet"),
        *("ibert", "xmod", "jina_embeddings_v3"),
        *("vit", "deit"),
    }
)
NOT_POOLED = frozenset(
    {
        *(
            "distilbert",
            "electra",
            "convbert",
            "deberta-v2",
            "deberta",
            "nomic_bert",
            "roformer",
            "modernbert",
            "eurobert",
        ),
        *("new", "gte"),
        *("layoutlm", "big_bird", "fnet", "squeezebert"),  # which have that projection whatever they put out
        *("yoso", "mra", "nystromformer", "esmc"),
        *("dinov2", "dinov2_with_registers", "beit", "ijepa", "vit_msn"),
        *("wav2vec2", "hubert", "sew", "wavlm", "unispeech", "unispeech-sat", "sew-d", "data2vec-audio"),
        *("wav2vec2-bert", "wav2vec2-conformer"),
        *NO_WORDS,
    }
)
PAIRS_OF_T5 = ("t5", "mt5", "umt5")
PROJECTS = (
    "bart",
    "mbart",
    "plbart",
    "mvp",
    "bigbird_pegasus",
    *PAIRS_OF_T5,
)  # pairs whose classes of a sequence have a projection
MODERN = ("modernbert", "modernbert-decoder")  # what lies before an output has a norm, and no bias
# a choice is read from the last token without a projection, or from the first by that which a type has anyway
LAST_AS_IT_IS = ("convbert", "roformer", "big_bird")
PROJECTED = ("layoutlm", "fnet", "squeezebert")  # whose classes of a sequence read what that projection puts out
# which have networks of their own before that output, or another table of words
NOT_COUNTED = (("big_bird", "ForQuestionAnswering"), ("xlm", ""), ("flaubert", ""))
# types whose class has the name of another
NAMED = {
    "gpt-sw3": "gpt2",
    "hunyuan_v1_dense": "hunyuandensev1",
    "hunyuan_v1_moe": "hunyuanmoev1",
    "internlm3": "llama",
    "iquestcoder": "llama",
    "glmga": "glm46v",
}
MANY = 10  # classes of a token, from which LayoutLMv3 has a projection before them
OF_CLASSES = "an output over {classes} of a {what} is counted, as {named} has it{unsaid}"
OF_ANSWERS = "an output over the first and the last token of an answer is counted, as {named} has it"
UNSAID = "; the file names no labels (id2label)"


def has_other_output(named: str, kind: str) -> bool:
    """Return whether a class puts out vectors or classes of text."""
    return named.endswith((*OF_SEQUENCE, *OF_TOKENS)) or is_bare(named, kind)


def is_bare(named: str, kind: str) -> bool:
    """Return whether a class is a model without an output, or the encoder of such a one.

    It has the name of its type: BertModel, and neither GPT2DoubleHeadsModel nor Qwen2ForRewardModel.
    """
    plain = re.sub("[_-]", "", kind).removesuffix("model")
    stems = {plain, NAMED.get(kind, plain)}
    bare = {f"{stem}{what}" for stem in stems for what in ("model", "encodermodel")}
    return re.sub("_", "", named).lower() in {*bare, "automodel"}


def is_other_of_whole(named: str, kind: str) -> bool:
    """Return whether a class of a text model with encoders puts out vectors, or classes of a sequence."""
    return is_bare(named, kind) or is_bare(re.sub("ForSequenceClassification$", "Model", named), kind)


def with_other_output(c: ConfigReader, kind: str, model: Architecture, named: str) -> Architecture:
    """Return a model with the output of the class that its file names, in place of that of its type.

    A table of words is then of the parameters beside its layers. Raises ValueError where that output is not counted.
    """
    if kind in SOUND and named.endswith(OF_SOUND):
        c.assumed.append(_told(c, named, c.classes()))
        return with_classes(c, model, each=named.endswith(OF_TOKENS))
    if named.endswith("EncoderModel"):
        model = _encoder_alone(c, kind, model, named)
    encodes, bare, hidden = kind in {*POOLED, *NOT_POOLED}, named.endswith(BARE), model.hidden_size
    attends = [m for run in model.runs for m in run.layer.mixers if isinstance(m, Attention)]
    decodes = model.embedding_width == hidden and (not attends or any(m.masked for m in attends))
    decodes = (decodes or kind in PAIRS_OF_T5) and not (kind in PAIRS and named.endswith("ForTokenClassification"))
    left_out = any(kind == other and named.endswith(end) for other, end in NOT_COUNTED)
    if left_out or not (encodes or decodes) or not (model.embeds or (encodes and bare)):
        raise ValueError(f"architectures: {named}: its output is not counted for model_type {kind}")
    columns = _columns(c, named)
    held, met = _own(c, kind, model)
    small, dense = _other(kind, named, hidden, columns)
    c.assumed.append(_told(c, named, columns))
    table = model.vocab_size * model.embedding_width * model.embeds
    return msgspec.structs.replace(
        model,
        vocab_size=columns,
        embeds=False,
        tied=False,
        embedding_size=0,
        beside_parameters=model.beside_parameters + table - held + small,
        beside_weights=model.beside_weights - met + dense,
        once_weights=0 if named.endswith(OF_TOKENS) else dense + columns * hidden,
    )


def _encoder_alone(c: ConfigReader, kind: str, model: Architecture, named: str) -> Architecture:
    """Return the encoder of a pair of T5's family."""
    if kind not in PAIRS_OF_T5:
        raise ValueError(f"architectures: {named}: the encoder of a pair alone is not counted for model_type {kind}")
    layers = [run.layer for run in model.runs for _ in range(run.count) if run.layer.beside is None]
    for told in (c.assumed, c.token):
        told[:] = [text for text in told if text != BOTH_SIDES]
    table = 0 if kind == "umt5" else c.whole("relative_attention_num_buckets") * c.whole("num_attention_heads")
    return msgspec.structs.replace(
        model,
        **summary(layers),
        num_hidden_layers=len(layers),
        stack=runs_of(layers),
        beside_parameters=model.beside_parameters - model.hidden_size - table,
    )


def _columns(c: ConfigReader, named: str) -> int:
    """Return the columns of an output: classes, or the ends of an answer; one of a bare model, left out again."""
    if named.endswith("ForQuestionAnswering"):
        return 2
    if named.endswith((BARE, "ForMultipleChoice")):
        return 1
    return c.classes()


def _told(c: ConfigReader, named: str, columns: int) -> str:
    if named.endswith(BARE):
        return NO_OUTPUT.format(named=named)
    if named.endswith("ForQuestionAnswering"):
        return OF_ANSWERS.format(named=named)
    unsaid = "" if columns == 1 or c.given("num_labels") or c.given("id2label") else UNSAID
    what = "token" if named.endswith(OF_TOKENS) else "sequence"
    return OF_CLASSES.format(classes=counted(columns, "class"), what=what, named=named, unsaid=unsaid)


def _own(c: ConfigReader, kind: str, model: Architecture) -> tuple[int, int]:
    """Return what a type has around its own output: biases and norms, and weights that are multiplied."""
    hidden, words, width = model.hidden_size, model.vocab_size, model.embedding_width
    if kind in MODERN:
        return hidden + words * c.flag("decoder_bias", default=True), hidden * hidden
    if kind in DECODERS:
        return words * switch(c, DECODERS[kind].head_bias), 0
    if not model.embeds:
        return words, max(0, model.once_weights - words * hidden)
    return (words + 3 * width, hidden * width) if kind in {*POOLED, *NOT_POOLED} else (0, 0)


def _other(kind: str, named: str, hidden: int, columns: int) -> tuple[int, int]:
    """Return the same of another output, and of a bare model what takes the column that stands for its output away."""
    if named.endswith(BARE):
        pooled = kind in POOLED
        return hidden * pooled - hidden, hidden * hidden * pooled
    if kind not in {*POOLED, *NOT_POOLED, *MODERN, *PROJECTS}:
        return columns * (named.endswith(OF_TOKENS) or kind == "t5gemma"), 0
    projects = kind in MODERN or (named.endswith(OF_SEQUENCE) and kind not in PROJECTED)
    projects |= kind == "layoutlmv3" and (columns >= MANY or named.endswith("ForQuestionAnswering"))
    projects = projects and not (kind in LAST_AS_IT_IS and named.endswith("ForMultipleChoice"))
    biases = columns * (kind != "modernbert-decoder")
    return biases + hidden * projects, hidden * hidden * projects
