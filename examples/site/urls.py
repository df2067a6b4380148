"""The addresses of the shop's pages."""

from django.urls import path

from examples.site import views

urlpatterns = [
    path("", views.show_shop),
    path("orders/", views.place_order),
    path("orders/<pack_id>/<invoice_id>/", views.show_order),
]
