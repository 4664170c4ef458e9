"""Show itineraries; the agent writes them, people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from example_project.travel.models import Itinerary

if TYPE_CHECKING:
    from django.http import HttpRequest


@admin.register(Itinerary)
class ItineraryAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not subscriptable at run time
    """List itineraries, read only."""

    list_display = ("booking_reference", "passenger", "flight", "created_at")
    search_fields = ("booking_reference", "passenger", "flight")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Itinerary | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Itinerary | None = None) -> bool:
        return False
