"""The app: what Django is told of it, and what starts with it."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AdkConfig(AppConfig):
    """adk_django as an installed app."""

    name = "adk_django"
    label = "adk_django"
    verbose_name = _("agent runs")
    default_auto_field = "django.db.models.BigAutoField"

    autodiscover = True

    def ready(self) -> None:
        """Register the checks; import the ``agents`` module of every installed app, unless ``autodiscover`` is off.

        Connect to nothing.
        """
        from adk_django.checks import celery, settings  # noqa: F401  # registers them

        if self.autodiscover:
            from adk_django.agents import autodiscover

            autodiscover()
