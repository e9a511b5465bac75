# Build for this or another architecture, without a compiler for it:
#   docker build -t headgate .
#   docker buildx build --platform linux/amd64,linux/arm64 -t headgate .

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY pkg pkg
ARG TARGETOS TARGETARCH VERSION=unknown
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=$VERSION" -o /headgate ./cmd/headgate

# --target nonroot: for what needs no privilege, such as `headgate version`.
FROM gcr.io/distroless/static-debian12:nonroot AS nonroot
COPY --from=build /headgate /headgate
ENTRYPOINT ["/headgate"]

# The agent, and the commands that read its maps, are root: the BPF file system
# belongs to root, and Kubernetes gives added capabilities to no other user.
# Of root's capabilities they need few; drop the rest where the pod is described.
FROM gcr.io/distroless/static-debian12 AS agent
COPY --from=build /headgate /headgate
ENTRYPOINT ["/headgate"]
CMD ["agent"]
