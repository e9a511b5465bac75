package ui

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/browser"
)

// mustServe serves a node on the loopback.
func mustServe(t *testing.T, f *fake) string {
	server := httptest.NewServer(New(f))
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// shop is three Service ports with traffic, of which one has an ejected backend.
func shop() *fake {
	f := &fake{services: some(3)}
	f.services[0].Backends, f.services[0].PerSecond, f.services[0].Avoided = 6, of(50), 1
	f.services[2].Service, f.services[2].Name = hostile, "shop/"+hostile+":http/TCP"
	f.avoided = []Avoided{{Backend: "10.244.0.1:8080/TCP", Services: []string{f.services[0].Name}, Pod: "shop/web-0-0", Node: "node-b", Zone: "zone-a", Since: time.Now()}}
	for i := range 40 {
		f.flows = append(f.flows, Flow{ID: uint64(i), Open: true, Client: netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 3)}), Backend: fmt.Sprintf("10.244.0.%d:8080/TCP", 2+i%5)})
	}
	return f
}

func TestAPersonSeesTheNodeInABrowser(t *testing.T) {
	c := browser.Start(t)
	c.Open(mustServe(t, shop()), 1280, 800)
	c.Want(`document.querySelectorAll('.row:not([hidden])').length`, "3")
	c.Want(`document.querySelector('#verdict').textContent`, "Well")
	c.Want(`document.querySelector('#name').textContent`, "shop/web-0:http/TCP") // the one that is in trouble
	c.Want(`document.querySelectorAll('#diagram .link:not(.idle)').length > 5`, "true")
	c.Want(`document.querySelectorAll('#diagram .box.hurt').length`, "1")
	c.Want(`[...document.querySelectorAll('#events .what')].map(e => e.textContent).join()`, "ejected")
	c.Picture("three")
	c.Ask(`document.querySelector('#theme').click()`)
	c.Want(`document.documentElement.dataset.theme`, "dark")
	c.Ask(`document.querySelector('[data-unit="open"]').click()`)
	c.Want(`[...document.querySelectorAll('#diagram tspan')].some(e => e.textContent === '14')`, "true")
	c.Picture("three-dark")
	c.Ask(`document.querySelector('[data-tab="backends"]').click()`)
	c.Want(`[...document.querySelectorAll('#table tr')].map(e => e.children[2].textContent).join()`, "ejected for 5s,ok,ok,ok,ok,ok")
	c.Picture("backends-dark")
	c.Ask(`document.querySelector('[data-tab="story"]').click()`)
	c.Want(`document.querySelector('#told dd.outcome')?.textContent`, "connect() goes straight to one of the backends")
	c.Ask(`document.querySelector('#from').value = 'nobody'; document.querySelector('#ask button').click()`)
	c.Want(`document.querySelector('#told .wrong')?.textContent`, "--from: not an address")
	c.Ask(`document.querySelector('#from').value = ''`)
	c.Said = nil // the browser tells of each answer that is an error
	// A name that is markup is text.
	c.Ask(`[...document.querySelectorAll('.row')].find(e => e.dataset.name.includes('<img')).click()`)
	c.Want(`document.querySelector('#name').textContent.includes('<img')`, "true")
	c.Want(`document.title + document.querySelectorAll('img').length`, "node-a – Headgate0")
	c.Ask(`document.querySelector('#verdict').click()`)
	c.Want(`document.querySelector('#status dd')?.textContent`, "v1.2.3 on node-a: WELL")
	c.Picture("story-dark")
	if len(c.Said) > 0 {
		t.Errorf("the browser complains: %q", c.Said)
	}
}

func TestTheRowsOfManyServicesAreThoseThatAreVisible(t *testing.T) {
	c := browser.Start(t)
	f := &fake{services: some(10_000)}
	c.Open(mustServe(t, f)+"#sort=name&unit=open", 1280, 800)
	c.Want(`document.querySelectorAll('.row:not([hidden])').length > 10`, "true")
	c.Want(`document.querySelector('#matched').textContent`, "10,000")
	c.Picture("many")
	c.Ask(`document.querySelector('#rows').scrollTop = 1e9`)
	c.Want(`[...document.querySelectorAll('.row:not([hidden])')].some(e => e.dataset.name === 'shop/web-9999:http/TCP')`, "true")
	c.Want(`document.querySelectorAll('.row').length < 80`, "true")
	c.Ask(`document.querySelector('#search').value = 'web-77'; document.querySelector('#search').dispatchEvent(new Event('input'))`)
	c.Want(`document.querySelector('#matched').textContent`, "111 of 10,000")
	c.Ask(`document.querySelector('#search').value = 'web-777'; document.querySelector('#search').dispatchEvent(new Event('input'))`)
	c.Want(`document.querySelectorAll('.row:not([hidden])').length`, "11")
	c.Ask(`document.querySelector('#search').value = 'nothing'; document.querySelector('#search').dispatchEvent(new Event('input'))`)
	c.Want(`document.querySelector('#none')?.checkVisibility() && document.querySelector('#none').textContent`, "No Service has this in its name or in an address.")
	if len(c.Said) > 0 {
		t.Errorf("the browser complains: %q", c.Said)
	}
}

// An address that somebody keeps says all that is looked at: nothing stays of the one before.
func TestAnotherAddressOfThePageShowsWhatItHas(t *testing.T) {
	c := browser.Start(t)
	c.Open(mustServe(t, shop())+"#service=shop%2Fweb-1%3Ahttp%2FTCP&search=web-1&sort=name&descending=true&tab=story&unit=open", 1280, 800)
	c.Want(`document.querySelectorAll('.row:not([hidden])').length`, "1")
	c.Want(`document.querySelector('#told')?.textContent.includes('ClusterIP of shop/web-1')`, "true")
	c.Ask(`location.hash = '#service=shop%2Fweb-0%3Ahttp%2FTCP&tab=story'`)
	c.Want(`document.querySelector('#name').textContent`, "shop/web-0:http/TCP")
	c.Want(`document.querySelector('#told')?.textContent.includes('ClusterIP of shop/web-0')`, "true")
	c.Ask(`location.hash = '#unit=rate'`)
	c.Want(`document.querySelectorAll('.row:not([hidden])').length`, "3")
	c.Want(`JSON.stringify(asked)`, `{"service":"shop/web-0:http/TCP","search":"","sort":"state","descending":false,"tab":"traffic","unit":"rate"}`)
	c.Want(`document.querySelector('#search').value`, "")
	if len(c.Said) > 0 {
		t.Errorf("the browser complains: %q", c.Said)
	}
}

func TestANodeWithoutServicesAndANarrowWindow(t *testing.T) {
	c := browser.Start(t)
	c.Open(mustServe(t, &fake{}), 1280, 800)
	c.Want(`document.querySelector('#none')?.checkVisibility() && document.querySelector('#none').textContent`, "No Service is in force on this node.")
	c.Picture("none")
	c.Open(mustServe(t, shop()), 400, 1500)
	c.Want(`document.querySelectorAll('#diagram .link').length > 5`, "true")
	c.Want(`document.documentElement.scrollWidth <= innerWidth`, "true")
	c.Picture("narrow")
	if len(c.Said) > 0 {
		t.Errorf("the browser complains: %q", c.Said)
	}
}
