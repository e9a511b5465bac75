package ui

import (
	"crypto/subtle"
	"net"
	"net/http"
)

// WithToken answers only who has the token, as other users of the node can connect to the loopback,
// too: by the address with ?token=, which leaves a cookie for the port in the browser.
func WithToken(token string, next http.Handler) http.Handler {
	is := func(given string) bool { return subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1 }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := cookieName(r)
		if given := r.URL.Query().Get("token"); given != "" && is(given) && isLoopback(r.Host) {
			http.SetCookie(w, &http.Cookie{Name: name, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			w.Header().Set("Referrer-Policy", "no-referrer")
			http.Redirect(w, r, r.URL.Path, http.StatusSeeOther)
			return
		}
		if c, err := r.Cookie(name); err != nil || !is(c.Value) {
			http.Error(w, "no token, or that of an earlier headgate ui: open the address that headgate ui printed last, at localhost or a loopback address", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// cookieName is that of the cookie for the port of a page: browsers give cookies to all ports of a
// host.
func cookieName(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host)
	return "headgate-ui-" + port
}
