#!/bin/sh
# What the container file says, step by step, with the kernel's own means: `sh without_an_engine.sh CONTEXT ROOM`.
#
# CONTEXT is what an engine would be sent, ROOM an empty folder. RUN, ENVIRONMENT, HEALTHCHECK and ENTRYPOINT are those of
# the file, HISTORY is something to verify. Has to be root, in a mount namespace of its own (unshare).
set -eu
context=$1 room=$2

# /opt/mussurana, which is not on this machine, beside whatever is in /opt already.
mkdir "$room/opt" "$room/installed"
mount --bind /opt "$room/opt"
mount -t tmpfs none /opt
for each in "$room"/opt/*; do
    [ -d "$each" ] && mkdir "/opt/${each##*/}" && mount --rbind "$each" "/opt/${each##*/}"
done
mkdir /opt/mussurana
mount --bind "$room/installed" /opt/mussurana

echo "== build"
(cd "$context" && sh -euc "$RUN") >"$room/build.log" 2>&1 || { tail -50 "$room/build.log"; exit 1; }
test ! -e /opt/mussurana/bin/pip

echo "== confine"
for each in /var/lib /var/cache /tmp; do mount -t tmpfs -o noexec,nosuid,nodev,mode=755 none "$each"; done
install -d -o 10001 -g 10001 -m 0700 /var/lib/mussurana /var/cache/mussurana
chmod 1777 /tmp
mount -o remount,ro,bind /opt/mussurana
mount -o remount,ro /opt
mount -o remount,ro,bind /

# The rest with a network of its own, in which the image's ports are free.
exec unshare --net sh -eu <<'RUN_CONFINED'
ip link set lo up
become() {
    exec setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
        env -i $ENVIRONMENT "$@"
}
inside() { (become "$@"); }
for each in /etc /opt/mussurana /usr/bin /var/lib; do
    if inside touch "$each/written" 2>/dev/null; then echo "$each can be written"; exit 1; fi
done
inside id

echo "== run"
cd /
become $ENTRYPOINT serve --ingest-insecure true --verify-levels serializable >/tmp/log 2>&1 &
daemon=$!
trap 'kill -KILL $daemon 2>/dev/null || true' EXIT
attempts=0
until inside python -c "$HEALTHCHECK" 2>/dev/null; do
    attempts=$((attempts + 1))
    [ $attempts -lt 100 ] || { cat /tmp/log; exit 1; }
    sleep 0.2
done
echo "healthy"
grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs)' "/proc/$daemon/status"
printf "%s" "$HISTORY" >/tmp/duty.txt
inside $ENTRYPOINT replay /tmp/duty.txt --to 127.0.0.1:7701 --speed 0
attempts=0
until inside $ENTRYPOINT verdicts | grep REJECTED; do
    attempts=$((attempts + 1))
    [ $attempts -lt 300 ] || { cat /tmp/log; inside $ENTRYPOINT status; exit 1; }
    sleep 1
done

echo "== end"
kill -TERM $daemon
code=0
wait $daemon || code=$?
echo "exit code $code"
if inside python -c "$HEALTHCHECK" 2>/dev/null; then echo "healthy without a daemon"; exit 1; fi
echo "not healthy any more"
RUN_CONFINED
