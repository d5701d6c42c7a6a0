"""A Django site whose threads share one client. Run it with any WSGI server, for example `gunicorn django_app:application`.

The client reads `OUTREACH_BASE_URL`, `OUTREACH_OWNER_KEY` and `OUTREACH_WORKSPACE` from the environment. It is opened on its
first use, because servers fork after they have loaded the site, and closed when the process ends.
"""

import atexit
import json
from contextlib import ExitStack
from functools import cache

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from outreach_async import ContactRejected, InvalidRequest, NewContact, OutreachError
from outreach_async.sync import SyncClient


@cache
def outreach() -> SyncClient:
    exits = ExitStack()
    atexit.register(exits.close)
    return exits.enter_context(SyncClient(deadline=10.0))  # a visitor waits for at most ten seconds


def sign_up(request: HttpRequest) -> JsonResponse:
    signup = json.loads(request.body)
    contact = NewContact(signup["email"], first_name=signup["first_name"])
    try:
        created = outreach().contacts.create(contact, duplicates="update_missing_fields")
    except (InvalidRequest, ContactRejected) as error:  # the visitor's data is invalid; messages of the library contain no secret
        return JsonResponse({"error": str(error)}, status=422)
    except OutreachError as error:
        return JsonResponse({"error": str(error)}, status=503)
    return JsonResponse({"status": created.status})


urlpatterns = [path("signups", csrf_exempt(sign_up))]

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="only for this example")  # a site has a settings module
django.setup()
application = get_wsgi_application()
