"""Configure the travel app."""

from django.apps import AppConfig


class TravelConfig(AppConfig):
    """Keep passengers' itineraries."""

    name = "example_project.travel"
    label = "travel"
    verbose_name = "Travel"
    default_auto_field = "django.db.models.BigAutoField"
