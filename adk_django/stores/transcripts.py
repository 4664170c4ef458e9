"""What every history store does alike: read messages from their texts, and refuse those that are not there whole."""

from collections.abc import Iterable, Sequence

from adk_django.core import codec
from adk_django.core.checkpoint import HistoryHandle
from adk_django.core.messages import Message
from adk_django.exceptions import HistoryUnavailableError


def unavailable(handle: HistoryHandle) -> HistoryUnavailableError:
    """Return the error of a conversation that is not there."""
    message = f"the {handle.length} messages of run {handle.run_id} are not there whole"
    return HistoryUnavailableError(message, handle=handle)


def read(texts: Iterable[str], handle: HistoryHandle) -> tuple[Message, ...]:
    """Return the messages that ``texts`` hold. Raise HistoryUnavailableError if one cannot be read."""
    try:
        return tuple(Message.from_data(codec.decode(text)) for text in texts)
    except codec.DecodeError as error:
        raise unavailable(handle) from error


def read_whole(texts: Sequence[str], handle: HistoryHandle, *, tenant: str) -> tuple[Message, ...]:
    """Return the messages that ``texts`` hold. Raise HistoryUnavailableError unless they are exactly the handle's."""
    rolling = ""
    for text in texts:
        rolling = codec.chain(rolling, text)
    if tenant != handle.tenant or len(texts) != handle.length or rolling != handle.digest:
        raise unavailable(handle)
    return read(texts, handle)
