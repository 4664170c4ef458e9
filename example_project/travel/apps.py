"""Configure the travel app."""

from django.apps import AppConfig


class TravelConfig(AppConfig):
    """Keep passengers' itineraries."""

    name = "example_project.travel"
    label = "travel"
    verbose_name = "Travel"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Make the product's Celery app the current one, so that the web process knows whom to wake."""
        from example_project import celery  # noqa: F401  # makes it
