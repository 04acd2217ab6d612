// A table that keeps the elements of its cells when its rows change: an open menu stays open, and focus where it is.
// (A cell drawn from a template of the server is created again at every change on the page.)
export default {
  template: `
    <q-table ref="qRef" :columns="shown" :rows="parsed">
      <template v-slot:no-data="{ message }"><div class="empty full-width">{{ message }}</div></template>
      <template v-for="it in of('link')" :key="it.name" v-slot:[it.slot]="cell">
        <q-td :props="cell">
          <a v-if="cell.row.href" :href="cell.row.href">{{ cell.value }}</a>
          <span v-else>{{ cell.value }}</span>
        </q-td>
      </template>
      <template v-for="it in of('chip')" :key="it.name" v-slot:[it.slot]="cell">
        <q-td :props="cell"><span class="chip" :class="cell.row.tone">{{ cell.value }}</span></q-td>
      </template>
      <template v-for="it in of('bar')" :key="it.name" v-slot:[it.slot]="cell">
        <q-td :props="cell">
          <div class="meter" role="img" :aria-label="cell.row.said">
            <div class="part" :style="{ width: cell.row.within + '%' }"></div>
            <div class="part over" :style="{ width: cell.row.over + '%' }"></div>
          </div>
        </q-td>
      </template>
      <template v-slot:body-cell-actions="cell">
        <q-td :props="cell">
          <q-btn v-if="cell.row.actions" flat dense round icon="more_vert" :aria-label="'Actions for ' + cell.row.name">
            <q-menu auto-close>
              <q-list :aria-label="'Actions for ' + cell.row.name" role="menu"
                @keydown.down.prevent="($event.target.nextElementSibling || $event.target).focus()"
                @keydown.up.prevent="($event.target.previousElementSibling || $event.target).focus()">
                <q-item v-for="(label, at) in cell.row.actions.split(',')" :key="label" clickable role="menuitem"
                  :data-autofocus="at === 0 ? '' : null" @click="$emit('act', [label, cell.row.id])">
                  <q-item-section>{{ label }}</q-item-section>
                </q-item>
              </q-list>
            </q-menu>
          </q-btn>
        </q-td>
      </template>
    </q-table>
  `,
  props: { columns: Array, rows: Array, told: String },
  emits: ["act"],
  computed: {
    parsed() {
      return JSON.parse(this.told || "[]");
    },
    shown() {
      const two = (value) => (typeof value === "number" ? value.toFixed(2) : value);
      const slotted = this.columns.map((it) => ({ ...it, slot: `body-cell-${it.name}` }));
      return slotted.map((it) => (it.kind === "gpus" ? { ...it, format: two } : it));
    },
  },
  methods: {
    of(kind) {
      return this.shown.filter((it) => it.kind === kind);
    },
  },
};
