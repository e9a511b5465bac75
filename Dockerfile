# The agent, which is one static binary: make image builds it and then this.
#
# It runs as root: the BPF file system belongs to root, and Kubernetes gives
# added capabilities to no other user. Of root's capabilities it needs few; drop
# the rest where the pod is described, as deploy/overlays/least-privilege does.
FROM scratch
ARG TARGETARCH
COPY bin/linux/$TARGETARCH/headgate /headgate
ENTRYPOINT ["/headgate"]
CMD ["agent"]
