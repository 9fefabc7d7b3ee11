"""Types whose classes differ by more than their output: how a file is read by the class that it names."""

from collections.abc import Callable, Mapping
from functools import partial

from ..architecture import Architecture
from . import contrastive, masked
from .bert import electra_discriminator
from .contrastive import CHINESE, CLIP, SIGLIP, SIGLIP2, classified, contrasted, read_alone, seen_alone
from .images import ast, beit, deit_with_teacher
from .reader import ConfigReader
from .records import dpr, dpr_reader, tapas, tapas_answers, tapas_classes
from .series import timesfm, timesfm_alone
from .speech_to_text import parakeet_ctc, parakeet_encoder
from .wav2vec import pretraining

Recipe = Callable[[ConfigReader], Architecture]


def _pair(stem: str, kind: contrastive.Contrast) -> dict[str, Recipe]:
    return {
        f"{stem}Model": partial(contrasted, kind=kind),
        f"{stem}ForImageClassification": partial(classified, kind=kind),
    }


def _sides(prefix: str, stem: str, kind: contrastive.Contrast) -> dict[str, dict[str, Recipe]]:
    """Return the types of one encoder of a pair."""
    found: dict[str, dict[str, Recipe]] = {}
    for side, of_one in (("text", read_alone), ("vision", seen_alone)):
        own: dict[str, Recipe] = {f"{stem}{side.capitalize()}Model": partial(of_one, kind=kind)}
        if not kind.head:
            own[f"{stem}{side.capitalize()}ModelWithProjection"] = partial(of_one, kind=kind, projects=True)
        found[f"{prefix}_{side}_model"] = own
    return found


# all classes of a type that are counted, the first where a file names none
OWN: dict[str, Mapping[str, Recipe]] = {
    "clip": _pair("CLIP", CLIP),
    "chinese_clip": {"ChineseCLIPModel": partial(contrasted, kind=CHINESE)},
    "siglip": _pair("Siglip", SIGLIP),
    "siglip2": _pair("Siglip2", SIGLIP2),
    "metaclip_2": _pair("MetaClip2", CLIP),
    **_sides("clip", "CLIP", CLIP),
    **_sides("metaclip_2", "MetaClip2", CLIP),
    **_sides("siglip", "Siglip", SIGLIP),
    **_sides("siglip2", "Siglip2", SIGLIP2),
    "data2vec-vision": {
        "Data2VecVisionModel": partial(beit, vectors=True),
        "Data2VecVisionForImageClassification": beit,
    },
    "audio-spectrogram-transformer": {"ASTModel": partial(ast, vectors=True), "ASTForAudioClassification": ast},
    "vit_mae": {"ViTMAEModel": masked.vit_mae_alone, "ViTMAEForPreTraining": masked.vit_mae},
    "videomae": {
        "VideoMAEModel": masked.videomae_alone,
        "VideoMAEForPreTraining": masked.videomae,
        "VideoMAEForVideoClassification": masked.videomae_classes,
    },
    "parakeet_encoder": {"ParakeetEncoder": parakeet_encoder},
    "parakeet_ctc": {"ParakeetForCTC": parakeet_ctc},
    "timesfm": {"TimesFmModel": timesfm_alone, "TimesFmModelForPrediction": timesfm},
    "dpr": {
        **{named: partial(dpr, named=named) for named in ("DPRContextEncoder", "DPRQuestionEncoder")},
        "DPRReader": dpr_reader,
    },
    "tapas": {
        "TapasModel": tapas,
        "TapasForQuestionAnswering": tapas_answers,
        "TapasForSequenceClassification": tapas_classes,
    },
    "vjepa2": {"VJEPA2Model": masked.vjepa2, "VJEPA2ForVideoClassification": masked.vjepa2_classes},
}
# classes that the ends of their names do not tell
FURTHER: dict[str, Mapping[str, Recipe]] = {
    "wav2vec2": {"Wav2Vec2ForPreTraining": pretraining},
    "electra": {"ElectraForPreTraining": electra_discriminator},
    "beit": {"BeitForMaskedImageModeling": masked.tokens_of_images},
    "vit": {"ViTForMaskedImageModeling": partial(masked.pixels_of_images, tokens=1)},
    "deit": {
        "DeiTForMaskedImageModeling": partial(masked.pixels_of_images, tokens=2),
        "DeiTForImageClassificationWithTeacher": deit_with_teacher,
    },
}
UNNAMED = "the file names no class (architectures): read as {first}"


def by_class(kind: str, named: str) -> Recipe | None:
    """Return how a class is read, None where its type has a way for all of them."""
    found = {**OWN.get(kind, {}), **FURTHER.get(kind, {})}.get(named)
    if found is None and kind in OWN:
        return next(iter(OWN[kind].values()))
    return found
