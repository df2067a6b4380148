"""The pages of the shop."""

import os
import time

from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_GET, require_POST

from examples.site.celery import invoice
from examples.site.ledger import PRICES
from examples.site.tasks import TaskResultDoesNotExist, pack


@require_GET
def show_shop(request: HttpRequest) -> HttpResponse:
    """The page with the prices, an order form and the chat."""
    visits = request.session["visits"] = request.session.get("visits", 0) + 1
    context = {
        "visits": visits,
        "opened": cache.get_or_set("opened", time.ctime, timeout=None),
        "prices": PRICES,
        "ledger": cache.get("ledger", {}),
        "process": os.getpid(),
    }
    return render(request, "shop.html", context)


@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    """Enqueue a task of each kind; the ids lead to `show_order`."""
    item, count = request.POST.get("item"), request.POST.get("count", "1")
    if item not in PRICES or not count.isdecimal():
        return HttpResponseBadRequest(f"there is no {count!r} x {item!r}")
    packed, paid = pack.enqueue(item, int(count)), invoice.delay(item, int(count))
    return JsonResponse({"order": f"/orders/{packed.id}/{paid.id}/"})


@require_GET
def show_order(_: HttpRequest, pack_id: str, invoice_id: str) -> HttpResponse:
    """What has become of an order."""
    try:
        packed = pack.get_result(pack_id)
    except TaskResultDoesNotExist as error:
        raise Http404(f"there is no order {pack_id!r}") from error
    return JsonResponse({"packed": packed.status, "paid": invoice.AsyncResult(invoice_id).status})


urlpatterns = [
    path("", show_shop),
    path("orders/", place_order),
    path("orders/<pack_id>/<invoice_id>/", show_order),
]
