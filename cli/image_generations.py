"""What `checkpoint list`, `scale` and `doctor` say of images that a repartition makes, or has made, useless."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stateflow.catalog.model import Catalog
from stateflow.checkpoint.changelog_policy import ChangelogPolicy
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.outdated_images import GenerationImages, images_by_generation
from stateflow.cli.output import human_bytes
from stateflow.config import AppOptions
from stateflow.redaction import redacted_text, shown


@dataclass(frozen=True, slots=True)
class ImageGenerations:
    """The images of an application, where their place is known and answers."""

    location: str
    """Without what may be a secret."""
    active: GenerationImages
    outdated: tuple[GenerationImages, ...]
    problem: str | None = None
    """Why they cannot be seen."""

    def left_behind(self) -> str | None:
        """What a repartition would make useless, in a sentence; None for nothing."""
        if self.problem is not None:
            return (
                f"The images at {self.location} cannot be seen ({self.problem}); none that is there can be used after"
                " this."
            )
        if not self.active.images:
            return None
        return (
            f"{_counted(self.active)} at {self.location} cannot be used after this, as the tasks become others: until"
            " workers have made new ones, a restore reads whole changelogs. `stateflow checkpoint gc` then removes"
            " the old ones."
        )

    def data(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "location": self.location,
            "images": self.active.images,
            "size_bytes": self.active.size_bytes,
            "problem": self.problem,
        }


def image_generations(catalog: Catalog, options: AppOptions) -> ImageGenerations | None:
    """The images that an application has; None where no place of images is configured. Raises ``SetupError``."""
    location = ChangelogPolicy.of(catalog).images(options.images)
    if location is None:
        return None
    place, number = shown(location), catalog.active.generation
    try:
        found = images_by_generation(open_objects(location), catalog.app.app)
    except OSError as error:
        return ImageGenerations(place, GenerationImages(number), (), redacted_text(str(error)))
    active = found.pop(number, GenerationImages(number))
    return ImageGenerations(place, active, tuple(of for of in found.values() if of.images))


def outdated_sentence(outdated: GenerationImages, active: int) -> str:
    """What is said of the images of a generation that is not active any more."""
    return (
        f"{_counted(outdated)} of generation {outdated.generation} cannot be used: by a repartition, or the restore of"
        f" a savepoint, generation {active} is active."
    )


def outdated_data(outdated: GenerationImages) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "generation": outdated.generation,
        "images": outdated.images,
        "tasks": len(outdated.tasks),
        "size_bytes": outdated.size_bytes,
    }


def _counted(images: GenerationImages) -> str:
    noun = "image" if images.images == 1 else "images"
    return f"{images.images} {noun} ({human_bytes(images.size_bytes)})"
