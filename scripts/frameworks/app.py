"""Flask for gunicorn (app:flask_app) and FastAPI for uvicorn (app:fastapi_app)."""

import os

import fastapi
import flask
from fastapi.responses import PlainTextResponse

NAME = os.environ["NAME"]

flask_app = flask.Flask(__name__)
fastapi_app = fastapi.FastAPI()


@flask_app.get("/")
def flask_name():
    return NAME + "\n"


@flask_app.post("/orders")
def flask_order():
    return {"name": NAME, "order": flask.request.get_json()}


@fastapi_app.get("/", response_class=PlainTextResponse)
async def fastapi_name():
    return NAME + "\n"


@fastapi_app.post("/orders")
async def fastapi_order(order: dict):
    return {"name": NAME, "order": order}
