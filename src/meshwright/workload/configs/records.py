"""Encoders of passages, questions and tables, in the style of BERT: DPR and TAPAS."""

from ..architecture import Architecture
from .bert import bert_layers
from .reader import ConfigReader
from .towers import NO_OUTPUT, Tower, alone

# of TAPAS: how its loss is formed, and how many cells of a table are read
OF_TABLES = (
    *("aggregation_labels", "aggregation_loss_weight", "average_approximation_function", "answer_loss_cutoff"),
    *("answer_loss_importance", "allow_empty_column_selection", "average_logits_per_cell", "select_one_column"),
    *("cell_selection_preference", "disable_per_token_loss", "huber_loss_delta", "init_cell_selection_weights_to_zero"),
    *("max_num_columns", "max_num_rows", "no_aggregation_label_index", "positive_label_weight", "reset_position_index"),
    *("reset_position_index_per_cell", "use_answer_as_supervision", "use_gumbel_for_aggregation"),
    *("use_gumbel_for_cells", "use_normalized_answer_loss", "aggregation_temperature", "num_aggregation_labels"),
)


def _tower(c: ConfigReader, types: int, *, pooled: bool) -> Tower:
    """Return an encoder with tables of words, places and `types` kinds of tokens; `pooled`: with BERT's pooler."""
    c.fixed({"position_embedding_type": "absolute"})
    c.skip("tie_word_embeddings")  # no output over words is there to be tied
    hidden, places = c.whole("hidden_size"), c.whole("max_position_embeddings")
    held = (c.whole("vocab_size") + places + types + 2) * hidden + hidden * pooled
    return Tower(hidden, bert_layers(c), held, places, once=hidden * hidden * pooled)


def dpr(c: ConfigReader, *, named: str) -> Architecture:
    """Return one of DPR's two encoders: BERT's first vector, projected where projection_dim says so."""
    c.assumed.append(NO_OUTPUT.format(named=named))
    return alone(_tower(c, c.whole("type_vocab_size"), pooled=False), c.whole("projection_dim", 0))


def dpr_reader(c: ConfigReader) -> Architecture:
    """Return DPR's reader: the ends of an answer for each token, and one number for each passage."""
    if c.whole("projection_dim", 0):
        raise ValueError("projection_dim: expected 0: a reader over projected vectors is not counted")
    plain = _tower(c, c.whole("type_vocab_size"), pooled=False)
    scored = Tower(plain.width, plain.layers, plain.held + 1, plain.places, once=plain.width)
    return alone(scored, 2, each=True)


def _tables(c: ConfigReader) -> Tower:
    """Return TAPAS: BERT with a table for each of several kinds of tokens."""
    types = c.numbers("type_vocab_sizes")
    if not types:
        raise ValueError("type_vocab_sizes: expected a list of whole numbers")
    c.fixed({"type_vocab_size": types})
    c.skip(*OF_TABLES)
    return _tower(c, sum(types), pooled=True)


def tapas(c: ConfigReader) -> Architecture:
    """Return TAPAS alone."""
    c.assumed.append(NO_OUTPUT.format(named="TapasModel"))
    return alone(_tables(c), 0)


def tapas_classes(c: ConfigReader) -> Architecture:
    """Return TAPAS with classes of a table and a statement."""
    return alone(_tables(c), c.classes())


def tapas_answers(c: ConfigReader) -> Architecture:
    """Return TAPAS with a number for each token and each column, and how the cells are aggregated."""
    plain, kinds = _tables(c), c.whole("num_aggregation_labels", 0)
    once = plain.once + plain.width * kinds
    return alone(Tower(plain.width, plain.layers, plain.held + kinds, plain.places, once=once), 2, each=True)
