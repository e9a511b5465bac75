package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/httpserve"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/ui"
)

// uiAddress is where the page is, unless somebody says otherwise.
const uiAddress = "127.0.0.1:10247"

func newUI(e *env) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page for a browser that shows this node, until it is interrupted",
		Long: `Serves a page for a browser, until it is interrupted: the Services of this node with their rates, the
connections of one of them from clients over zones to backends, what explain says of it, and which
backends are avoided, as it happens. It reads only while somebody looks, and changes nothing of what is in force; explain makes
a cgroup of its own for a moment.

The page is on the loopback alone. Its address has a token, new each time, without which it
answers nothing. For a browser elsewhere bring it there, as by ssh -L 10247:127.0.0.1:10247 NODE.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLoopback(address); err != nil {
				return err
			}
			if err := e.look(func(*datapath.Reader) error { return nil }); err != nil {
				return err
			}
			limitGarbage(garbage)
			token := rand.Text()
			w := newWindow(e)
			defer w.Close()
			return httpserve.Run(cmd.Context(), httpserve.Config{
				Address: address, Handler: ui.WithToken(token, ui.New(w)), HardFail: true,
				Listen: func(network, address string) (net.Listener, error) { return announce(cmd, network, address, token) },
			})
		},
	}
	cmd.Flags().StringVar(&address, "listen", uiAddress, "address of the loopback and port, where the page is; port 0 is any that is free")
	return cmd
}

// checkLoopback refuses an address at which others than this machine could ask.
func checkLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--listen %s: not an address with a port; write one such as %s", lb.Quote(address), uiAddress)
	}
	if addr, err := netip.ParseAddr(host); err != nil || !addr.IsLoopback() {
		return fmt.Errorf("--listen %s: not an address of the loopback, and the page tells everybody who can reach it all about this node; write 127.0.0.1 or [::1] and a port", lb.Quote(address))
	}
	return nil
}

// announce listens, and says where the page is.
func announce(cmd *cobra.Command, network, address, token string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w; another headgate ui may be there: look at it, or write --listen with another port", err)
	}
	if err == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "http://%s/?token=%s shows this node; press Ctrl-C to end it\n", l.Addr(), token)
	}
	return l, err
}
