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


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Supervised loss L_CE of Eq. 3, a scalar: logits (B, C), labels int64 (B,)."""
    return F.cross_entropy(logits, labels)
