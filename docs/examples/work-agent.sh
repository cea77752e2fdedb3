#!/bin/sh
# An agent for `sealpost work -- docs/examples/work-agent.sh`. It remembers the messages of each conversation.
history="$SEALPOST_THREAD_STATE/history"
if [ "$SEALPOST_TURN_ATTEMPT" = 1 ]; then
  cat >> "$history"
  echo >> "$history"
fi
echo "You have sent $(wc -l < "$history" | tr -d ' ') lines in this conversation."
