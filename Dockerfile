# One image for the controller, the agent and the three daemons of a chassis node.
#
# BUILDER names the stage, or a finished image, that holds the binary at /ovn-chassis. By default it is built here; a pipeline that
# has built it already puts it into an image of its own and names that one (tests/lab/build-image does). An older buildah (1.28) takes
# the default for an image's name: tell it --build-arg BUILDER=build.
# The binary is linked statically: an init container carries it into images of other distributions (spec.image).
ARG BUILDER=build
ARG BASE=debian:trixie-slim

FROM rust:1.95-trixie AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY src src
RUN target=$(rustc -vV | sed -n 's/^host: //p') \
 && RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --target "$target" --bin ovn-chassis \
 && cp "target/$target/release/ovn-chassis" /ovn-chassis

FROM ${BUILDER} AS binary

FROM ${BASE}
# Nothing in a container starts these daemons but our own entrypoint; what the packages would start by themselves is refused.
RUN printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d \
 && apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends openvswitch-switch ovn-host iproute2 procps \
 && rm -rf /var/lib/apt/lists/* /usr/sbin/policy-rc.d /etc/openvswitch/conf.db /etc/openvswitch/system-id.conf
COPY --from=binary /ovn-chassis /usr/local/bin/ovn-chassis
ENTRYPOINT ["/usr/local/bin/ovn-chassis"]
