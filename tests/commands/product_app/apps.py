"""An app of a product, one of whose checks always fails: no business of our commands."""

from django.apps import AppConfig
from django.core.checks import Error, register


class DeskConfig(AppConfig):
    """The desk."""

    name = "tests.commands.product_app"

    def ready(self) -> None:
        """Register the check."""
        register(fails)


def fails(app_configs: object, **kwargs: object) -> list[Error]:
    """Fail."""
    return [Error("the desk is on fire", id="desk.E001")]
