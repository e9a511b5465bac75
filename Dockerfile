# Two images of one static binary each; make image builds the binary and then its
# image. The traffic generator is a stage of its own, which PROGRAM=headgate-bench
# asks for: what is privileged in a cluster is the agent alone.
FROM scratch AS headgate-bench
ARG TARGETARCH
COPY bin/linux/$TARGETARCH/headgate-bench /headgate-bench
ENTRYPOINT ["/headgate-bench"]

# The agent runs as root: the BPF file system belongs to root, and Kubernetes gives
# added capabilities to no other user. Of root's capabilities it needs few; drop
# the rest where the pod is described, as deploy/base does.
FROM scratch AS headgate
ARG TARGETARCH
COPY bin/linux/$TARGETARCH/headgate /headgate
ENTRYPOINT ["/headgate"]
CMD ["agent"]
