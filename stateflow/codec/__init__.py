"""Values ↔ bytes: scalars as Kafka writes them, JSON, MessagePack, Avro, and types from annotations."""

from stateflow.codec.base import Codec as Codec
from stateflow.codec.infer import codec_for as codec_for
from stateflow.codec.scalar import Boolean as Boolean
from stateflow.codec.scalar import Bytes as Bytes
from stateflow.codec.scalar import Float as Float
from stateflow.codec.scalar import Float32 as Float32
from stateflow.codec.scalar import Int32 as Int32
from stateflow.codec.scalar import Integer as Integer
from stateflow.codec.scalar import String as String
from stateflow.codec.structured import Json as Json
from stateflow.codec.structured import JsonOf as JsonOf
from stateflow.codec.structured import MsgPack as MsgPack
from stateflow.codec.structured import MsgPackOf as MsgPackOf
from stateflow.codec.structured import Plain as Plain
from stateflow.codec.table import from_description as from_description
from stateflow.codec.windowed import Windowed as Windowed
from stateflow.codec.windowed import WindowedCodec as WindowedCodec
