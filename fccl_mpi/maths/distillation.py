"""Knowledge distillation: what one model's logits tell another's."""

import torch.nn.functional as F
from torch import Tensor


def kl_divergence(teacher: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(softmax(teacher / T) || softmax(student / T)) T^2, a scalar (CVPR 2022, Eq. 4 and 5, T = 1).

    Summed over classes, averaged over the batch, both logits (B, C). T^2 keeps the gradient's size
    independent of T (Hinton et al. 2015).
    """
    log_teacher, log_student = (F.log_softmax(logits / temperature, dim=1) for logits in (teacher, student))
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True) * temperature**2


def kl_from_scores(scores: Tensor, student: Tensor) -> Tensor:
    """KL(scores || softmax(student)), a scalar: rows of scores (B, C) sum to 1, student logits (B, C)."""
    return F.kl_div(F.log_softmax(student, dim=1), scores, reduction="batchmean")


def non_target_divergence(teacher: Tensor, student: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """KL of the classes that are not the label: T^2 sum_{c != y} p_c log(p_c / q_c).

    A scalar, averaged over the batch (FCCL+, TPAMI 2023). p and q are softmax over all classes of teacher
    and student (B, C) at temperature T; the label's entry is dropped and the rest not renormalised, so
    that a student that gives the label less than its teacher does can make it negative.
    """
    log_p, log_q = (F.log_softmax(logits / temperature, dim=1) for logits in (teacher, student))
    terms = F.kl_div(log_q, log_p, reduction="none", log_target=True)
    terms = terms.scatter(1, labels[:, None], 0.0)
    return terms.sum() / len(terms) * temperature**2


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Supervised loss L_CE of Eq. 3, a scalar: logits (B, C), labels int64 (B,)."""
    return F.cross_entropy(logits, labels)
