from __future__ import annotations

from django.urls import path

from . import views

app_name = "shop"

urlpatterns = [
    path("", views.orders, name="orders"),
    path("orders/<int:pk>/pay/", views.pay, name="pay"),
    path("orders/<int:pk>/refund/", views.refund, name="refund"),
]
