"""Checks the names of options for object stores, because the library silently ignores unknown ones."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["misspelt", "plain"]

#: How each store's own names begin, in options and in the environment.
_STORE = re.compile(r"^(?:aws|azure|google)_")
#: Without that. Names that are left out here are no mistake, unless they resemble one of these.
_NAMES = (
    "allow_http allow_invalid_certificates connect_timeout max_retries pool_idle_timeout proxy_url "
    "retry_timeout timeout user_agent "
    "access_key_id bucket bucket_name conditional_put copy_if_not_exists default_region endpoint "
    "endpoint_url imdsv1_fallback metadata_endpoint region request_payer role_arn role_session_name "
    "s3_express secret_access_key server_side_encryption session_token skip_signature sse_kms_key_id "
    "token unsigned_payload virtual_hosted_style_request web_identity_token_file "
    "access_key account_key account_name bearer_token client_id client_secret container_name "
    "federated_token_file master_key msi_endpoint object_id sas_key sas_token storage_access_key "
    "storage_account_key storage_account_name storage_client_id storage_client_secret "
    "storage_sas_key storage_sas_token storage_tenant_id storage_token storage_use_emulator tenant_id "
    "use_azure_cli use_emulator use_fabric_endpoint "
    "application_credentials base_url service_account service_account_key service_account_path"
)
_KNOWN = _NAMES.split()
#: From where on a name is taken for another one.
_ALIKE = 0.85


def plain(name: str) -> str:
    """The name of an option without the store's part."""
    return _STORE.sub("", name.lower())


def misspelt(names: Iterable[str]) -> str | None:
    """Names of options that are probably misspelt; `None` if none are."""
    found = []
    for name in names:
        if plain(name) in _KNOWN:
            continue
        alike = difflib.get_close_matches(plain(name), _KNOWN, n=1, cutoff=_ALIKE)
        if alike:
            prefix = _STORE.match(name.lower())
            meant = (prefix[0] if prefix else "") + alike[0]
            found.append(f"{name!r} (is {meant.upper() if name.isupper() else meant!s} meant?)")
    return None if not found else f"storage_options has an unknown name: {', '.join(found)}"
