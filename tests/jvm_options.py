"""Defines the options of the Java processes that live as long as some tests."""

from __future__ import annotations

#: In a minute no code runs so often that the second compiler pays: with it a session, a queue and a
#: tube are there after 42 seconds of processor time, without it after 23. The room for code is as
#: large as with it: half a minute of Spark fills the 48 MB of Java's own choice, and then calls fail.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
)
#: In the quarter of an hour of a worker it pays for what runs often indeed, five times as often as it
#: would ask for; and two workers leave no processor to a collector beside them. With the heap that
#: Java begins with, a tenth of the time goes to collections: of 24 tests 284 seconds of processor time
#: became 259.
WORKER = (
    "-Xms2g -Xmn1g -XX:MetaspaceSize=512m -XX:+UseSerialGC"
    " -XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000"
    " -XX:Tier4CompileThreshold=75000 -XX:Tier4BackEdgeThreshold=200000"
)
