"""An API server writes the namespace of an object early: the beginning of a too large object shows whose it is."""

import asyncio
import json
from typing import Any

import pytest

from adapter.objects.unstructured import key_of
from adapter.shell.kube import resources
from adapter.shell.kube.client import Client
from adapter.shell.kube.kubeconfig import parse_kubeconfig
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.response_limits import parse_beginning
from hack.testbed.stage import Stage

FIRST_BYTES = 1_024
