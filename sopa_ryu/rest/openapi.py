"""The OpenAPI 3.1 document, made from the operations of the interface."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from sopa_ryu import __version__
from sopa_ryu.rest.operations import PAGE, PROBLEM, Operation, Param
from sopa_ryu.rest.schemas import SCHEMAS

_ETAG = {
    "description": "Changes with the answer: the controller's epoch, the fabric's version and a checksum.",
    "schema": {"type": "string"},
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "An ETag: the answer is 304 without a body if it has not changed.",
    "schema": {"type": "string"},
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document of these operations."""
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "SOPA controller",
            "version": __version__,
            "description": "The state of a fat-tree with source-routed packet spraying: structure, failures, candidate paths.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The operator token: the file `token` in the controller's --sopa-state-dir; or a named one "
                    "(sopa token --operator).",
                }
            },
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    params = (*operation.params, *(PAGE if operation.listed else ()))
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [_parameter(param) for param in params],
        "responses": _responses(operation),
    }
    if operation.body:
        schema = {"$ref": f"#/components/schemas/{operation.body}"}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.method == "GET":
        described["parameters"].append(_IF_NONE_MATCH)
    if operation.token:
        described["security"] = [{"token": []}]
    return described


def _parameter(param: Param) -> dict[str, Any]:
    return {
        "name": param.name,
        "in": param.where,
        "required": param.required or param.where == "path",
        "description": param.description,
        "schema": dict(param.schema),
    }


def _responses(operation: Operation) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{operation.schema}"}
    responses: dict[str, Any] = {
        str(operation.status.value): {
            "description": operation.summary,
            "headers": {"ETag": _ETAG},
            "content": {"application/json": {"schema": schema}},
        }
    }
    problems = dict(operation.problems)
    if operation.method == "GET":
        responses["304"] = {"description": "nothing has changed", "headers": {"ETag": _ETAG}}
    if operation.body:
        problems.setdefault(HTTPStatus.BAD_REQUEST, "the body is no JSON object, or malformed")
    if any(param.where == "query" or param.names for param in operation.params) or operation.listed:
        problems.setdefault(HTTPStatus.BAD_REQUEST, "a parameter is missing, malformed, or unknown")
    if operation.token:
        problems[HTTPStatus.UNAUTHORIZED] = "the operator token is missing or wrong"
        problems[HTTPStatus.FORBIDDEN] = f"it is a named token without the role {operation.role.name.lower()}"
        no_token = "the controller has no token: it could not write the file; or no member of its cluster leads"
        problems[HTTPStatus.TEMPORARY_REDIRECT] = "another member of the cluster leads: the same request there, at Location"
        problems.setdefault(HTTPStatus.SERVICE_UNAVAILABLE, no_token)
    else:
        problems[HTTPStatus.UNAUTHORIZED] = "with --sopa-read-token: the token is missing or wrong"
    problems[HTTPStatus.REQUEST_ENTITY_TOO_LARGE] = "the request's body is too large"
    for status, when in sorted(problems.items()):
        responses[str(status.value)] = {
            "description": when,
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    return responses
