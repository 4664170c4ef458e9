"""The app: what Django is told of it, and what starts with it."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AdkConfig(AppConfig):
    """adk_django as an installed app."""

    name = "adk_django"
    label = "adk_django"
    verbose_name = _("agent runs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what listens from the start."""
        from adk_django import signals  # noqa: F401  # its names exist before anybody connects to them
